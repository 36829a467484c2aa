"""Bytes that are no sound module: one typed error that names the file, never anything else."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hloscope.errors import HloscopeError, InputError
from hloscope.ir.proto import read_proto, read_text_proto
from hloscope.ir.proto.schema import message_class
from hloscope.ir.verify import verify

HEAD = 'name: "m" entry_computation_id: 1 '
MAIN = 'computations {{ name: "main" id: 1 root_id: {root} {body} }}'
X = 'instructions { name: "x" opcode: "parameter" id: 1 shape { element_type: F32 } }'
Y = 'instructions { name: "y" opcode: "negate" id: 2 operand_ids: 1 shape { element_type: F32 } }'


def main(*instructions, root=1):
    return HEAD + MAIN.format(root=root, body=" ".join(instructions))


def changed(line, old, new):
    assert old in line
    return line.replace(old, new)


REFUSED = {
    "operand that is missing": (main(changed(Y, "operand_ids: 1", "operand_ids: 7"), root=2), "7"),
    "operands in a cycle": (
        main(X, changed(Y, "operand_ids: 1", "operand_ids: 2"), root=2),
        "cycle",
    ),
    "operand that comes later": (main(Y, X), "does not stand above"),
    "root that is missing": (main(X, root=9), "root of 'main' is missing"),
    "parameter numbers with a gap": (
        main(changed(X, "id: 1", "id: 1 parameter_number: 3")),
        r"numbered \[3\], not 0 to 0",
    ),
    "two instructions of one id": (main(X, changed(Y, "id: 2", "id: 1")), "have the id 1"),
    "two instructions of one name": (main(X, changed(Y, '"y"', '"x"')), "named 'x'"),
    "instruction without an opcode": (main(changed(X, '"parameter"', '""')), "no opcode"),
    "computation without instructions": (main(), "holds no instruction"),
    "call of a missing computation": (
        main(X, changed(Y, "operand_ids: 1", "operand_ids: 1 called_computation_ids: 5")),
        "calls computation 5",
    ),
    "computation that calls itself": (
        main(X, changed(Y, "operand_ids: 1", "operand_ids: 1 called_computation_ids: 1")),
        "calls computation 1",
    ),
    "control predecessor that is missing": (
        main(X, changed(Y, "operand_ids: 1", "operand_ids: 1 control_predecessor_ids: 5")),
        "waits for instruction 5",
    ),
    "entry that is missing": (
        changed(main(X), "entry_computation_id: 1", 'entry_computation_name: "other"'),
        "entry computation 'other' is missing",
    ),
    "two computations of one id": (main(X) + MAIN.format(root=1, body=X), "the id 1"),
    "two computations of one name": (
        main(X) + changed(MAIN.format(root=1, body=X), "id: 1 root", "id: 2 root"),
        "named 'main'",
    ),
    "schedule that lacks an instruction": (
        main(X, Y) + "schedule { sequences { key: 1 value { instruction_ids: 1 } } }",
        "does not list each instruction",
    ),
    "schedule against the operands": (
        main(X, Y) + "schedule { sequences { key: 1 value { instruction_ids: [2, 1] } } }",
        "does not stand above",
    ),
    "element type that is unknown": (
        main(changed(X, "element_type: F32", "element_type: 99")),
        "element type 99",
    ),
    "layout of other dimensions": (
        main(changed(X, "F32", "F32 dimensions: 4 layout { minor_to_major: 1 }")),
        "layout names dimensions",
    ),
    "size that is negative": (
        main(changed(X, "F32", "F32 dimensions: -4")),
        "negative size",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_unsound_module_is_refused_with_its_file_and_what_is_wrong(case):
    text, complaint = REFUSED[case]
    with pytest.raises(InputError, match=complaint) as caught:
        read_text_proto(text, file="dump.hlo.pb")
    assert caught.value.place.startswith("dump.hlo.pb")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "is empty"),
        (b"\x0a\xff\xff\xff\xff\x0fabc", "cut"),
        (b"plain text, no protobuf", "is no HloProto"),
        (b"\x0a\x04name\x12\x04main", "holds no HLO computation"),
    ],
)
def test_bytes_that_hold_no_module_are_refused(data, complaint):
    with pytest.raises(InputError, match=complaint):
        read_proto(data, file="f.pb")


def field(number, content):
    """A length-delimited field on the wire."""
    length, prefix = len(content), bytearray([number << 3 | 2])
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + content


def test_shapes_nested_beyond_reason_are_refused():
    shape = b"\x10\x0b"  # element_type: F32
    for _ in range(3000):
        shape = b"\x10\x0d" + field(4, shape)  # element_type: TUPLE, of one shape
    instruction = field(1, b"x") + field(2, b"parameter") + field(3, shape)
    module = field(1, b"m") + field(3, field(1, b"main") + field(2, instruction))

    with pytest.raises(InputError):
        read_proto(module, file="f.pb")


def test_a_text_proto_that_breaks_off_names_its_line():
    with pytest.raises(InputError, match="text format") as caught:
        read_text_proto('name: "m"\ncomputations {\n  name: "main"\n', file="f.pbtxt")
    assert caught.value.place.startswith("f.pbtxt:")


def test_a_text_proto_nested_beyond_reason_is_refused():
    text = 'name: "m" computations { name: "c" instructions { name: "i" opcode: "x" shape {'
    text += "tuple_shapes {" * 5000 + "}" * 5000 + "} } }"

    with pytest.raises(InputError):
        read_text_proto(text, file="f.pbtxt")


def test_a_mesh_axis_that_does_not_exist_is_refused_when_it_is_read():
    sharding = 'sharding { named_sharding { mesh { axes { name: "a" size: 2 } } '
    sharding += "dim_shardings { axes { mesh_axis_index: 4 } } } } id: 1"
    module = read_text_proto(main(changed(X, "id: 1", sharding)), file="f.pb")[0]

    with pytest.raises(InputError, match="no mesh axis 4") as caught:
        _ = module.entry.root.sharding
    assert "%x" in caught.value.message


def touch(module):
    """Read everything that is decoded on demand."""
    verify(module)
    for instruction in module.instructions():
        _ = (instruction.attributes, instruction.metadata, instruction.stack)
        _ = (instruction.backend_config, instruction.frontend_attributes, instruction.sharding)
        _ = (instruction.window, instruction.dim_labels, instruction.dot_dims)
        _ = (instruction.slices, instruction.padding, instruction.control_predecessors)
        _ = instruction.replica_groups
        if instruction.literal is not None:
            instruction.literal.facts()


def refusal(data):
    """The typed error's text, ``None`` where everything reads; anything else escapes."""
    try:
        touch(read_proto(data, file="mutated.pb"))
    except HloscopeError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def seeds():
    native = pytest.importorskip("jaxlib._hlo")
    from oracles.instruction_texts import INSTRUCTIONS, module_text

    found = []
    for instruction in INSTRUCTIONS[::9]:
        try:
            module = native.hlo_module_from_text(module_text(instruction))
        except RuntimeError:  # this jaxlib does not know the instruction
            continue
        found.append(module.as_serialized_hlo_module_proto())
    assert len(found) > 5
    return found


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "delete", "insert", "copy"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=6,
)


def edited(data, edits):
    data = bytearray(data)
    for kind, where, byte, length in edits:
        at = int(where * len(data))
        if kind == "flip" and data:
            data[at] ^= 1 << (byte % 8)
        elif kind == "set" and data:
            data[at] = byte
        elif kind == "delete":
            del data[at : at + length]
        elif kind == "insert":
            data[at:at] = bytes([byte]) * length
        else:
            data[at:at] = data[:length]
    return bytes(data)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=EDITS, choice=st.integers(0, 1000), cut=st.floats(0.5, 1))
def test_mutated_bytes_raise_nothing_but_typed_errors(seeds, edits, choice, cut):
    data = edited(seeds[choice % len(seeds)], edits)
    data = data[: int(len(data) * cut)] if choice % 5 == 0 else data
    assert "mutated.pb" in (refusal(data) or "mutated.pb")


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_fields_raise_nothing_but_typed_errors(seeds, data):
    """Edits of single fields keep the bytes a protobuf, and so reach further than edited bytes."""
    message = message_class("HloModuleProto").FromString(
        data.draw(st.sampled_from(seeds), label="seed")
    )
    for _ in range(data.draw(st.integers(1, 3))):
        part = message
        while True:
            fields = [field for field, _ in part.ListFields()]
            if not fields:
                break
            field = data.draw(st.sampled_from(fields))
            value = getattr(part, field.name)
            repeated = hasattr(value, "append") or hasattr(value, "add")
            if field.message_type is not None:
                if repeated and data.draw(st.integers(0, 9)) == 0:
                    del value[data.draw(st.integers(0, len(value) - 1))]
                    break
                part = value[data.draw(st.integers(0, len(value) - 1))] if repeated else value
                continue
            kind = type(value[0]) if repeated else type(value)
            drawn = data.draw(_value(kind))
            try:
                if repeated:
                    value[data.draw(st.integers(0, len(value) - 1))] = drawn
                else:
                    setattr(part, field.name, drawn)
            except (ValueError, TypeError):
                pass  # out of the field's range
            break
    assert "mutated.pb" in (refusal(message.SerializeToString()) or "mutated.pb")


def _value(kind):
    if kind is str:
        return st.sampled_from(
            ["", "while", "call", "conditional", "fusion", "constant", "iota", "parameter", "{"]
        )
    if kind is bytes:
        return st.binary(max_size=12)
    if kind is float:
        return st.floats(width=32)
    if kind is bool:
        return st.booleans()
    return st.sampled_from([0, 1, 2, 3, 7, 13, 34, 99, -1, 2**31 - 1, -(2**31), 2**62, -(2**63)])
