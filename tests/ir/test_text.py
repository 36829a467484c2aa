"""The text parser: what it reads, what it makes of it, and how it refuses the rest."""

from textwrap import dedent

import pytest

from hloscope.errors import ParseError
from hloscope.ir import parse_modules, parse_text

MODULE = """\
HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), \
{1,0}: (2, {1}, must-alias) }, buffer_donor={ (1, {}), (2, {0,1}) }, \
entry_computation_layout={(f32[4]{0}, s32[], (f32[2]{0}, f32[2]{0}))->f32[4]{0}}, \
num_partitions=8, frontend_attributes={fingerprint="ab"}

FileNames
1 "model.py"
2 "layers/dense.py"

FunctionNames
1 "step"
2 "Dense.__call__"

FileLocations
1 {file_name_id=1 function_name_id=1 line=20 end_line=20 column=4 end_column=31}
2 {file_name_id=2 function_name_id=2 line=7 end_line=7 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

%fused (p.0: f32[4], p.1: f32[4]) -> f32[4] {
  %p.1 = f32[4]{0} parameter(1)
  %p.0 = f32[4]{0} parameter(0)
  ROOT %add.0 = f32[4]{0} add(%p.0, %p.1), metadata={op_name="jit(step)/add" stack_frame_id=2}
}

ENTRY %main.1 (x: f32[4], n: s32[], t: (f32[2], f32[2])) -> f32[4] {
  %t = (f32[2]{0}, f32[2]{0}) parameter(2)
  %n = s32[] parameter(1), metadata={op_name="state[\\'n\\']"}
  %x = f32[4]{0} parameter(0)
  %c = f32[4]{0} constant({1, 2, 3, 4})
  ROOT %fusion = f32[4]{0} fusion(%x, /*index=1*/%c), kind=kLoop, calls=%fused
  %late = f32[4]{0} negate(%fusion), control-predecessors={%x, %c}
}
"""


def entry(body: str, head: str = "HloModule m\n") -> str:
    return f"{head}ENTRY e {{\n{dedent(body)}}}\n"


def test_the_header_gives_aliases_donors_layout_and_partitions():
    module = parse_text(MODULE)
    assert module.name == "jit_step"
    assert module.is_scheduled
    aliases = [
        (a.output_index, a.parameter, a.parameter_index, a.kind) for a in module.input_output_alias
    ]
    assert aliases == [((0,), 0, (), "may-alias"), ((1, 0), 2, (1,), "must-alias")]
    donors = [(d.parameter, d.parameter_index) for d in module.buffer_donors]
    assert donors == [(1, ()), (2, (0, 1))]
    assert module.num_partitions == 8
    assert module.replica_count == 1
    assert module.header.entry_layout is not None
    parameters, result = module.header.entry_layout
    assert [str(shape) for shape in parameters] == ["f32[4]{0}", "s32[]", "(f32[2]{0}, f32[2]{0})"]
    assert str(result) == "f32[4]{0}"
    assert module.header.attributes["frontend_attributes"] == '{fingerprint="ab"}'


def test_an_alias_from_before_the_kinds_existed_is_a_may_alias():
    module = parse_text(
        entry("p = f32[] parameter(0)\n", "HloModule m, input_output_alias={ {}: 0 }\n")
    )
    (alias,) = module.input_output_alias
    assert (alias.output_index, alias.parameter, alias.kind) == ((), 0, "may-alias")


def test_operands_are_the_instructions_themselves():
    main = parse_text(MODULE).entry
    fusion = main["fusion"]
    assert fusion.operands == (main["x"], main["c"])
    assert main["x"].users == (fusion,)
    assert main["late"].control_predecessors == (main["x"], main["c"])


def test_the_root_need_not_be_the_last_instruction():
    main = parse_text(MODULE).entry
    assert main.root.name == "fusion"
    assert main["fusion"].is_root
    assert not main["late"].is_root


def test_without_a_mark_the_last_instruction_is_the_root():
    assert parse_text(entry("q = f32[] parameter(0)\nr = f32[] negate(q)\n")).entry.root.name == "r"


def test_parameters_come_sorted_by_number_though_printed_in_schedule_order():
    module = parse_text(MODULE)
    assert [p.name for p in module.entry.parameters] == ["x", "n", "t"]
    assert module.entry["n"].op_name == "state['n']"


def test_called_computations_and_callers_point_at_each_other():
    module = parse_text(MODULE)
    fused = module.computations["fused"]
    assert module.entry["fusion"].called == (fused,)
    assert fused.callers == (module.entry["fusion"],)
    assert fused.is_fusion
    assert module.caller_chain(fused) == (module.entry["fusion"],)


def test_a_text_frame_whose_parent_is_one_has_none():
    add = parse_text(MODULE).computations["fused"]["add.0"]
    assert [(f.file, f.line, f.function) for f in add.stack] == [
        ("layers/dense.py", 7, "Dense.__call__"),
        ("model.py", 20, "step"),
    ]
    assert str(add.location) == "layers/dense.py:7"


def test_a_table_that_prints_parents_as_the_protobuf_has_them_is_told_by_its_zero():
    text = MODULE.replace(
        "1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}",
        "1 {file_location_id=1 parent_frame_id=0}\n2 {file_location_id=2 parent_frame_id=1}",
    )
    add = parse_text(text).computations["fused"]["add.0"]
    assert [frame.file for frame in add.stack] == ["layers/dense.py", "model.py"]


@pytest.mark.parametrize(
    ("innermost", "shown"),
    [
        ("/opt/venv/lib/python3.12/site-packages/flax/nnx/linear.py", "model.py:20"),
        ("dist-packages/flax/nnx/linear.py", "model.py:20"),
        ("/usr/lib/python3.12/functools.py", "model.py:20"),
        ("my_site-packages/dense.py", "my_site-packages/dense.py:7"),
    ],
)
def test_the_line_of_a_librarys_work_is_where_the_users_code_calls_it(innermost, shown):
    add = parse_text(MODULE.replace("layers/dense.py", innermost)).computations["fused"]["add.0"]
    assert add.stack[0].file == innermost
    assert str(add.location) == shown


def test_work_that_a_library_starts_by_itself_is_named_from_its_package_on():
    text = MODULE.replace("layers/dense.py", "/v/lib/python3.12/site-packages/optax/a.py")
    text = text.replace("model.py", "/v/lib/python3.12/site-packages/optax/b.py")
    assert str(parse_text(text).computations["fused"]["add.0"].location) == "optax/a.py:7"


def test_inline_source_locations_of_older_modules_are_read():
    module = parse_text(
        entry('p = f32[] parameter(0), metadata={op_name="x" source_file="a.py" source_line=3}\n')
    )
    assert str(module.entry["p"].location) == "a.py:3"


def test_operands_may_carry_shapes_and_lack_percent_signs():
    body = """\
    p = (f32[2]{0:T(8,128)(2,1)}, s32[]) parameter(0)
    %a = f32[2]{0} get-tuple-element((f32[2]{0:T(8,128)(2,1)}, s32[]) %p), index=0
    ROOT b = f32[2]{0} add(f32[2]{0} %a, f32[2]{0} a), metadata={op_name="add"}
    """
    main = parse_text(entry(body)).entry
    assert main["a"].operands == (main["p"],)
    assert main["a"].tuple_index == 0
    assert main["b"].operands == (main["a"], main["a"])


def test_instructions_may_be_wrapped_over_lines_and_carry_comments():
    body = """\
    // a comment
    p = f32[4] parameter(0)  // another
    c = f32[2,2] constant({
      { 1, 2 },
      { 3, 4 }
    })
    a = f32[4] add(p,
        p), metadata={op_name="x"}
    b = f32[4] negate(a)
        , metadata={op_name="wrapped { ( [ \\" "}, backend_config={"a":
      "}}
    }"}
    ROOT d = f32[4] add(a, b)
    """
    main = parse_text(entry(body)).entry
    assert [i.name for i in main.instructions] == ["p", "c", "a", "b", "d"]
    assert [i.line for i in main.instructions] == [4, 5, 9, 11, 15]
    assert main["c"].literal.values().tolist() == [[1, 2], [3, 4]]
    assert main["b"].op_name == 'wrapped { ( [ " '
    assert main["b"].backend_config == {"opaque": '{"a":\n  "}}\n}"}'}


def test_constants_keep_their_values_unless_the_text_elides_them():
    body = """\
    a = s32[] constant(-7)
    b = f32[] constant(-inf)
    c = pred[2] constant({1, 0})
    d = c64[] constant((1, -2))
    e = f32[100] constant({...})
    f = f64[3] constant({1e-3, nan, 2.5})
    g = bf16[4] constant({2, 2, 2, 2})
    h = s32[4] constant({0, 1, 2, 3})
    ROOT i = pred[] constant(true)
    """
    main = parse_text(entry(body)).entry
    assert main["a"].literal.scalar == -7
    assert main["b"].literal.scalar == float("-inf")
    assert main["c"].literal.values().tolist() == [True, False]
    assert main["d"].literal.scalar == 1 - 2j
    assert main["e"].literal.elided
    assert main["e"].literal.facts().kind == "unknown"
    assert main["f"].literal.facts().kind == "data"
    assert (main["g"].literal.facts().kind, main["g"].literal.facts().value) == ("splat", 2.0)
    assert main["h"].literal.facts().kind == "iota"
    assert main["i"].literal.scalar is True


def test_a_constant_that_its_type_cannot_hold_is_unknown():
    main = parse_text(entry(f"a = s32[2] constant({{1, {'9' * 30}}})\n")).entry
    assert main["a"].literal.values() is None
    assert main["a"].literal.facts().kind == "unknown"


def test_async_shorthand_becomes_async_start_of_a_wrapped_computation():
    body = """\
    p = f32[8] parameter(0)
    s = ((f32[8]), f32[4], u32[]) slice-start(p), slice={[0:4]}, metadata={op_name="cut"}
    u = ((f32[8]), f32[4], u32[]) slice-update(s)
    ROOT d = f32[4] slice-done(u)
    """
    module = parse_text(entry(body))
    main = module.entry
    assert [i.opcode for i in main.instructions] == [
        "parameter",
        "async-start",
        "async-update",
        "async-done",
    ]
    (wrapped,) = main["s"].called
    assert list(module.computations) == [wrapped.name, "e"]
    assert wrapped.root.opcode == "slice"
    assert str(wrapped.root.shape) == "f32[4]"
    assert wrapped.root.slices[0].limit == 4
    assert [p.shape for p in wrapped.parameters] == [main["p"].shape]
    assert main["s"].op_name == wrapped.root.op_name == "cut"


@pytest.mark.parametrize(
    "opcode", ["copy", "all-gather", "all-reduce", "collective-permute", "async"]
)
def test_async_opcodes_of_their_own_stay_as_they_are(opcode):
    body = f"p = f32[8] parameter(0)\ns = (f32[8], f32[8]) {opcode}-start(p)\n"
    module = parse_text(entry(body))
    assert module.entry["s"].opcode == f"{opcode}-start"
    assert len(module.computations) == 1


def test_unknown_attributes_are_kept_as_text():
    module = parse_text(entry("p = f32[] parameter(0), from_the_future={a=<b>, [c]}, level=3\n"))
    assert module.entry["p"].attributes == {"from_the_future": "{a=<b>, [c]}", "level": "3"}


def test_several_modules_in_one_text_are_all_read():
    second = entry("p = f32[] parameter(0)\n")
    text = f"// RUN: tool %s\n\n{MODULE}\n// -----\n# CHECK\n{second}"
    assert [module.name for module in parse_modules(text)] == ["jit_step", "m"]
    with pytest.raises(ParseError, match="holds 2 modules"):
        parse_text(text)


def test_text_without_a_header_is_a_module_too():
    module = parse_text(
        "c {\n  ROOT p = f32[] parameter(0)\n}\n\nENTRY e {\n  q = f32[] parameter(0)\n}"
    )
    assert module.name == "module_e"
    assert list(module.computations) == ["c", "e"]


def test_a_host_computation_names_its_thread():
    host = 'h {\n  p = f32[] parameter(0)\n}, execution_thread="host"\n\n'
    module = parse_text(entry("q = f32[] parameter(0)\n", f"HloModule m\n{host}"))
    assert module.computations["h"].execution_thread == "host"
    assert module.entry.execution_thread == "main"


def test_post_order_puts_operands_first_even_in_a_deep_chain():
    lines = ["x0 = f32[] parameter(0)"] + [f"x{n} = f32[] negate(x{n - 1})" for n in range(1, 5000)]
    main = parse_text(entry("\n".join(lines) + "\n")).entry
    seen: set[str] = set()
    for instruction in main.post_order():
        assert all(operand.name in seen for operand in instruction.operands)
        seen.add(instruction.name)
    assert len(seen) == 5000


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty"),
        ("// only a comment\n", 1, "nothing but comments"),
        ("module @jit_f {\n  func.func @main", 1, "this is MLIR"),
        ("{ lambda ; a:f32[]. let b = sin a in (b,) }", 1, "this is a jaxpr"),
        ("<html>", 1, "this is HTML"),
        ("hello world", 1, "this is not HLO"),
        ("HloModule m", 1, "ends before its first computation"),
        ("HloModule m, input_output_alias={ {0}: (0", 1, "never closes"),
        ("HloModule m\nENTRY e {\n", 3, "ends inside computation 'e'"),
        ("HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n", 4, "ends inside computation 'e'"),
        ("HloModule m\nENTRY e {\n  p = f32[] param", 3, "expected an opcode"),
        ("HloModule m\nENTRY e {\n  p = f32[4", 3, "expected a shape"),
        ('HloModule m\nENTRY e {\n  p = f32[] parameter(0), metadata={op_name="x', 3, "never"),
        ("HloModule m\nENTRY e {\n}\n", 3, "holds no instruction"),
        (entry("p = f33[] parameter(0)\n"), 3, "unknown element type"),
        (entry("p = f32[] parameter(0)\nq = f32[] negate(r)\n"), 4, "operand 'r' is not defined"),
        (entry("p = f32[] parameter(0)\np = f32[] negate(p)\n"), 4, "two instructions named 'p'"),
        (entry("ROOT p = f32[] parameter(0)\nROOT q = f32[] negate(p)\n"), 4, "two ROOT"),
        (entry("p = f32[] parameter(1)\n"), 2, "numbered"),
        (entry("p = f32[] parameter(0)\nq = f32[] parameter(0)\n"), 2, "numbered"),
        (entry("p = f32[] parameter(x)\n"), 2, "no parameter number"),
        (
            entry("p = f32[] parameter(0)\n") + "ENTRY f {\n  p = f32[] parameter(0)\n}\n",
            5,
            "second ENTRY",
        ),
        (
            "HloModule m, entry_computation_layout={(f32[])->f32[]}\n\n"
            "c {\n  p = f32[] parameter(0)\n}\n",
            6,
            "ends before the ENTRY",
        ),
    ],
)
def test_what_is_no_module_is_refused_at_its_line(text, line, message):
    with pytest.raises(ParseError, match=message) as caught:
        parse_text(text, file="step.hlo")
    assert caught.value.line == line
    assert str(caught.value).startswith(f"step.hlo:{line}:")


def test_an_error_shows_the_line_with_a_caret_under_the_place():
    with pytest.raises(ParseError) as caught:
        parse_text(entry("p = f32[] parameter(0)\nq = f32[] negate(missing)\n"), file="step.hlo")
    assert str(caught.value).splitlines()[1:3] == [
        "    q = f32[] negate(missing)",
        "                     ^",
    ]
    assert caught.value.column == 18


def test_an_error_in_a_very_long_line_shows_only_its_surroundings():
    with pytest.raises(ParseError) as caught:
        parse_text(entry(f"p = f32[] parameter(0)\nq = f32[] add({'p, ' * 5000}missing)\n"))
    assert max(map(len, str(caught.value).splitlines())) < 100


@pytest.mark.parametrize(
    ("attribute", "reader"),
    [
        ("window={size=3x3 pad=1_1}", "window"),
        ("replica_groups=[2,4]<=[9]", "replica_groups"),
        ("dim_labels=b0f_0i->b0f", "dim_labels"),
        ("calls=%nowhere", "called"),
    ],
)
def test_an_attribute_that_cannot_be_read_names_its_instruction(attribute, reader):
    module = parse_text(
        entry(f"p = f32[] parameter(0)\nq = f32[] negate(p), {attribute}\n"), file="f"
    )
    with pytest.raises(ParseError, match="%q") as caught:
        getattr(module.entry["q"], reader)
    assert caught.value.line == 4
