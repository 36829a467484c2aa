"""Protobuf against text: XLA's own printer says what the text of a protobuf is."""

import json
from pathlib import Path

import pytest
from oracles.equality import differences
from oracles.instruction_texts import INSTRUCTIONS, module_text
from oracles.traced_devices import assignment
from oracles.xspaces import message as written
from oracles.xspaces import number

from hloscope.ir import parse_text
from hloscope.ir.proto import read_proto, read_text_proto
from hloscope.ir.proto.schema import message_class

native = pytest.importorskip("jaxlib._hlo", reason="XLA's own parser is the oracle")

# The configuration that stands beside a module at compile time; no protobuf field holds it.
NOT_IN_PROTO = (
    "num_partitions",
    "replica_count",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
    "alias_passthrough_params",
)
FOLDER = Path(__file__).parents[3] / "shared" / "fixtures"
BAD = ("MUTATED", "NOT_HLO", "TRUNCATED", "MULTI", "BROKEN")
TEXTS = sorted(
    str(path.relative_to(FOLDER))
    for path in FOLDER.rglob("*.hlo")
    if not path.name.startswith(BAD)  # XLA's parser aborts the process on the mutated ones
)
PROTOS = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.hlo_proto.pb"))


def without_default(key, text):
    """XLA 0.12 prints this default, 0.10 does not know it, and a protobuf holds no defaults."""
    return None if (key, text) == ("has_dynamic_root", "false") else text


def printed(module):
    options = native.HloPrintOptions()
    options.print_large_constants = True
    return module.to_string(options)


def parsed(text):
    try:
        return native.hlo_module_from_text(text)
    except Exception as error:
        pytest.skip(f"this jaxlib refuses the text: {str(error).splitlines()[0][:80]}")


@pytest.mark.parametrize("name", TEXTS)
def test_a_recorded_module_reads_the_same_from_protobuf_and_from_text(fixtures_dir, name):
    module = parsed((fixtures_dir / name).read_text())

    from_proto = read_proto(module.as_serialized_hlo_module_proto(), file=name)
    from_text = parse_text(printed(module), file=name)

    assert (
        differences(from_proto, from_text, not_in_header=NOT_IN_PROTO, normal=without_default) == []
    )


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_an_attribute_is_printed_as_xla_prints_it(instruction):
    module = parsed(module_text(instruction))

    from_proto = read_proto(module.as_serialized_hlo_module_proto())
    from_text = parse_text(printed(module))

    assert (
        differences(from_proto, from_text, not_in_header=NOT_IN_PROTO, normal=without_default) == []
    )
    assert "tested" in from_proto.entry


def without_empty_lists(key, text):
    """XLA reads GPU backend configs and prints them anew, which loses empty lists."""
    if key != "backend_config" or not text.startswith('{"'):
        return text

    def pruned(value):
        if isinstance(value, dict):
            return {name: pruned(item) for name, item in value.items() if item != []}
        return value

    return json.dumps(pruned(json.loads(text)), sort_keys=True)


@pytest.mark.parametrize("name", PROTOS)
def test_a_recorded_protobuf_reads_as_xla_prints_it(fixtures_dir, name):
    data = (fixtures_dir / name).read_bytes()
    inner = message_class("HloProto").FromString(data).hlo_module.SerializeToString()
    try:
        module = native.HloModule.from_serialized_hlo_module_proto(inner)
    except Exception as error:
        pytest.skip(f"this jaxlib refuses the protobuf: {str(error).splitlines()[0][:80]}")

    from_proto = read_proto(data, file=name)
    from_text = parse_text(printed(module), file=name)

    found = differences(
        from_proto, from_text, not_in_header=NOT_IN_PROTO, normal=without_empty_lists
    )
    assert found == []


SMALL = """HloModule small, is_scheduled=true, input_output_alias={ {}: (0, {}, must-alias) }, \
buffer_donor={ (1, {}) }, frontend_attributes={a="b"}

%cond (c: f32[4]) -> pred[] {
  %c = f32[4]{0} parameter(0)
  ROOT %stop = pred[] constant(false)
}

%body (b: f32[4]) -> f32[4] {
  %b = f32[4]{0} parameter(0)
  ROOT %next = f32[4]{0} add(%b, %b)
}

ENTRY %main (x: f32[4], y: f32[4]) -> f32[4] {
  %y = f32[4]{0} parameter(1)
  %x = f32[4]{0} parameter(0)
  ROOT %loop = f32[4]{0} while(%x), condition=%cond, body=%body
  %late = f32[4]{0} negate(%y)
}
"""


@pytest.fixture
def small():
    message = message_class("HloModuleProto")()
    message.ParseFromString(native.hlo_module_from_text(SMALL).as_serialized_hlo_module_proto())
    return message


def test_the_header_comes_from_the_messages_fields(small):
    module = read_proto(small.SerializeToString())

    assert module.is_scheduled
    assert module.input_output_alias == parse_text(SMALL).input_output_alias
    assert module.buffer_donors == parse_text(SMALL).buffer_donors
    assert module.header.attributes["frontend_attributes"] == '{a="b"}'
    assert [str(shape) for shape in module.header.entry_layout[0]] == ["f32[4]{0}"] * 2


def test_the_order_is_the_schedules_even_where_the_root_is_not_last(small):
    module = read_proto(small.SerializeToString())

    assert [i.name for i in module.entry.instructions] == ["y", "x", "loop", "late"]
    assert module.entry.root.name == "loop"
    assert [p.name for p in module.entry.parameters] == ["x", "y"]


def test_without_a_schedule_the_order_is_the_messages(small):
    stored = [i.name for i in small.computations[-1].instructions]
    small.ClearField("schedule")

    module = read_proto(small.SerializeToString())

    assert not module.is_scheduled
    assert [i.name for i in module.entry.instructions] == stored


@pytest.mark.parametrize("swapped", [False, True])
def test_a_whiles_condition_is_the_computation_that_gives_a_predicate(small, swapped):
    loop = next(i for i in small.computations[-1].instructions if i.opcode == "while")
    if swapped:
        loop.called_computation_ids[:] = list(loop.called_computation_ids)[::-1]

    attributes = read_proto(small.SerializeToString()).entry["loop"].attributes

    assert (attributes["condition"], attributes["body"]) == ("%cond", "%body")


def test_partitions_come_from_the_device_assignment(small):
    small.device_assignment.replica_count = 2
    small.device_assignment.computation_count = 4

    module = read_proto(small.SerializeToString())

    assert (module.replica_count, module.num_partitions) == (2, 4)
    assert module.header.attributes["num_partitions"] == "4"


def test_a_module_inside_hloproto_and_snapshot_reads_like_the_bare_one(small):
    outer = message_class("HloProto")(hlo_module=small)
    snapshot = message_class("HloSnapshot")(hlo=outer)
    bare = read_proto(small.SerializeToString())

    for wrapped in (outer, snapshot):
        assert differences(read_proto(wrapped.SerializeToString()), bare) == []


@pytest.mark.parametrize("name", ["", "\x1a\x00", "a" * 200])
def test_the_modules_name_never_decides_what_the_bytes_are(small, name):
    small.name = name

    assert read_proto(small.SerializeToString()).name == name


def test_old_protobufs_with_small_ids_and_inline_sources_read():
    module = read_text_proto(
        """
        name: "old"
        entry_computation_name: "main"
        computations {
          name: "sum" id: 3 root_id: 3
          instructions { name: "a" opcode: "parameter" shape { element_type: F32 } id: 1 }
          instructions {
            name: "b" opcode: "parameter" parameter_number: 1 shape { element_type: F32 } id: 2
          }
          instructions {
            name: "add" opcode: "add" shape { element_type: F32 } id: 3 operand_ids: [1, 2]
          }
        }
        computations {
          name: "main" id: 9 root_id: 5
          instructions {
            name: "x" opcode: "parameter" id: 4
            shape { element_type: BF16 dimensions: 8 layout { minor_to_major: 0 } }
          }
          instructions {
            name: "reduced" opcode: "all-reduce" id: 5 operand_ids: 4 called_computation_ids: 3
            shape { element_type: BF16 dimensions: 8 layout { minor_to_major: 0 } }
            metadata { op_name: "jit(f)/psum" source_file: "f.py" source_line: 7 }
            replica_groups { replica_ids: [0, 1] }
            replica_groups { replica_ids: [2, 3] }
          }
        }
        """
    )[0]

    reduced = module.entry.root
    assert module.entry.name == "main"
    assert str(reduced.shape) == "bf16[8]{0}"
    assert reduced.replica_groups == ((0, 1), (2, 3))
    assert reduced.callee("to_apply").name == "sum"
    assert str(reduced.location) == "f.py:7"


GROUPS = {
    "legacy lists": ("replica_groups { replica_ids: [0, 1] }", ((0, 1),)),
    "device list": (
        "collective_device_list { replica_groups { replica_ids: [0, 2] } "
        "replica_groups { replica_ids: [1, 3] } }",
        ((0, 2), (1, 3)),
    ),
    "iota inside the device list": (
        "collective_device_list { iota_replica_group_list { num_replica_groups: 2 "
        "num_devices_per_group: 2 iota_reshape_dims: [2, 2] iota_transpose_perm: [1, 0] } }",
        ((0, 2), (1, 3)),
    ),
    "iota": (
        "iota_collective_device_list { num_replica_groups: 2 num_devices_per_group: 4 "
        "iota_reshape_dims: 8 iota_transpose_perm: 0 }",
        ((0, 1, 2, 3), (4, 5, 6, 7)),
    ),
    "mesh axes": (
        'mesh_axes_replica_group_list { mesh { axes { name: "dp" size: 2 } '
        'axes { name: "tp" size: 2 } } axes { mesh_axis_index: 0 } }',
        ((0, 2), (1, 3)),
    ),
    "none": ("channel_id: 1", ()),
}


@pytest.mark.parametrize("spelling", GROUPS)
def test_replica_groups_read_from_every_field_that_ever_held_them(spelling):
    fields, groups = GROUPS[spelling]
    module = read_text_proto(
        'name: "m" computations { name: "main" id: 1 root_id: 2 instructions { name: "x" '
        'opcode: "parameter" id: 1 shape { element_type: F32 } } instructions { name: "r" '
        f'opcode: "all-reduce" id: 2 operand_ids: 1 shape {{ element_type: F32 }} {fields} }} }} '
        "entry_computation_id: 1"
    )[0]

    assert module.entry["r"].replica_groups == groups


NAMED = [
    "{mesh['a'=2,'b'=4], [{'a'}, {'b', ?}]}",
    "{mesh['a'=2,'b'=4,'c'=2], [{'a'}, {}], replicated={'c'}, unreduced={'b'}}",
    "{mesh['a'=2,'b'=4], [{'a'}, {}], manual={'b'}}",
    "{mesh['a'=2,'b'=4], [{?}, {'a', 'b'}]}",
    "{mesh['a'=2,'b'=4], [], unreduced={'b'}}",
    "{mesh['a'=2,'b'=4], replicated}",
    "{mesh['a'=2,'b'=4], manual}",
    "{mesh['a'=2,'b'=4], unreduced}",
    "{mesh['a'=4,'b'=2], [{'a':(1)2}, {'b'}]}",
    "{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}, {'b'}]}",
    "{mesh['a'=2,'b'=2], device_ids=(0,2,1,3), [{'a'}, {'b'}]}",
    "{single_device[device_id=3]}",
    "{mesh['a'=2], [{'a'}, {}], metadata={{op_name=\"x\"}}}",
]


@pytest.mark.parametrize("sharding", NAMED)
def test_named_shardings_print_as_xla_prints_them(sharding):
    text = (
        "HloModule m\nENTRY %e (p: f32[8,8]) -> f32[8,8] {\n"
        f"  ROOT %p = f32[8,8]{{1,0}} parameter(0), sharding={sharding}\n}}\n"
    )
    module = parsed(text)

    read = read_proto(module.as_serialized_hlo_module_proto())

    assert read.entry.root.sharding == parse_text(printed(module)).entry.root.sharding


def test_a_reduction_of_unreduced_axes_is_named():
    text = (
        "HloModule m\nENTRY %e (p: f32[8]) -> f32[8] {\n"
        "  ROOT %p = f32[8]{0} parameter(0), sharding={mesh['a'=2], [{}], unreduced={'a'}}\n}\n"
    )
    message = message_class("HloModuleProto")()
    message.ParseFromString(parsed(text).as_serialized_hlo_module_proto())
    message.computations[0].instructions[0].sharding.named_sharding.reduction_op = 1

    read = read_proto(message.SerializeToString())

    assert read.entry.root.sharding == "{mesh['a'=2], [{}], unreduced=max{'a'}}"


def test_a_backend_config_in_the_payload_table_is_found():
    module = read_text_proto(
        'name: "m" payloads: "unused" payloads: "{\\"a\\": 1}" entry_computation_id: 1 '
        'computations { name: "main" id: 1 root_id: 1 instructions { name: "x" id: 1 '
        'opcode: "custom-call" shape { element_type: F32 } backend_config_payload { id: 1 } } }'
    )[0]

    assert module.entry.root.backend_config == {"a": 1}


def test_text_protos_with_run_lines_read_whole(fixtures_dir):
    text = (fixtures_dir / "hlo" / "MULTI_stack_frames_with_run_lines.hlo").read_text()

    modules = read_text_proto(text, file="frames")

    stacks = [[str(place) for place in m.entry.root.stack] for m in modules]
    assert stacks == [[], ["file_name:2"], ["file_name_2:3", "file_name:2"]]
    assert modules[2].entry.root.location.function == "function_name_2"


def test_devices_are_told_by_replica_and_partition():
    content = parsed("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }")
    content = content.as_serialized_hlo_module_proto()
    assert read_proto(content).devices == ()
    module = read_proto(content + assignment(0, 3, 1, 2))
    assert (module.num_partitions, module.devices) == (4, (0, 3, 1, 2))
    # Two replicas are said and one has a device: nothing is known of any.
    assert read_proto(content + assignment(0, 1) + written(15, number(1, 2))).devices == ()
