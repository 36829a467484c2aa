import pytest

from hloscope.errors import Unavailable
from hloscope.ir import parse_text
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.passes.aliasing import Reason, find_aliasing
from hloscope.pipeline.inputs import LoweredModule


def module(parameters, results, alias="", donor=""):
    """A module of these shapes; each result is its own constant-free broadcast."""
    header = (f", input_output_alias={{ {alias} }}" if alias else "") + (
        f", buffer_donor={{ {donor} }}" if donor else ""
    )
    lines = [f"p{n} = {shape} parameter({n})" for n, shape in enumerate(parameters)]
    lines += [
        f'r{n} = {shape} custom-call(), custom_call_target="made"'
        for n, shape in enumerate(results)
    ]
    values = ", ".join(f"r{n}" for n in range(len(results)))
    return parse_text(
        f"HloModule m{header}\nENTRY e {{\n" + "\n".join(lines) + "\n"
        f"ROOT t = ({', '.join(results)}) tuple({values}) }}"
    )


def leaf(path, parameter, dtype="f32", dimensions=(4,), donated=True, role=Role.STATE, **more):
    return InputLeaf(path, role, dtype, dimensions, donated, parameter, **more)


def result(path, index, dtype="f32", dimensions=(4,), **more):
    return OutputLeaf(path, dtype, dimensions, index, **more)


def outcome(found, path):
    return next(one for one in found.leaves if one.leaf.path == path)


def test_an_aliased_leaf_names_the_result_that_took_it():
    found = find_aliasing(
        module(["f32[4]", "f32[4]"], ["f32[4]", "f32[]"], "{0}: (0, {}, must-alias)"),
        Signature(
            (leaf("state['w']", 0), leaf("x", 1, role=Role.BATCH, donated=False)),
            (result("[0]['w']", 0), result("[1]", 1, dimensions=())),
        ),
    )
    w = outcome(found, "state['w']")
    assert (w.aliased, w.alias.kind, w.output.path, w.reason) == (
        True,
        "must-alias",
        "[0]['w']",
        None,
    )
    assert w.bytes == 16
    assert outcome(found, "x").reason is None
    assert not found.not_aliased


def test_a_leaf_that_was_not_donated_says_so():
    found = find_aliasing(
        module(["f32[4]"], ["f32[4]"]),
        Signature((leaf("state['w']", 0, donated=False),), (result("['w']", 0),)),
    )
    assert outcome(found, "state['w']").reason is Reason.NOT_DONATED


def test_a_result_of_another_dtype_is_found_by_its_path():
    found = find_aliasing(
        module(["bf16[4]", "f32[4]"], ["f32[4]", "f32[4]"], "{0}: (1, {}, may-alias)", "(0, {})"),
        Signature(
            (leaf("state['mu']", 0, "bf16"), leaf("state['w']", 1)),
            (result("[0]['w']", 0), result("[0]['mu']", 1)),
        ),
    )
    mu = outcome(found, "state['mu']")
    assert (mu.reason, mu.donor, mu.partner.path) == (Reason.DTYPE_DIFFERS, True, "[0]['mu']")
    assert mu.detail == "goes in as bf16, [0]['mu'] is f32"


def test_a_result_of_another_shape_is_found_by_its_path():
    found = find_aliasing(
        module(["f32[4]", "f32[4]"], ["f32[4]", "f32[6]"], "{0}: (1, {}, may-alias)"),
        Signature(
            (leaf("state['cache']", 0), leaf("state['w']", 1)),
            (result("[0]['w']", 0), result("[0]['cache']", 1, dimensions=(6,))),
        ),
    )
    assert outcome(found, "state['cache']").reason is Reason.SHAPE_DIFFERS
    assert outcome(found, "state['cache']").detail == "goes in as [4], [0]['cache'] is [6]"


@pytest.mark.parametrize(
    ("inside", "outside", "detail"),
    [
        ("PartitionSpec('x',)", "PartitionSpec('y',)", "goes in as PartitionSpec('x',)"),
        (None, None, "goes in as [4]"),  # the module's own sizes differ
    ],
)
def test_another_sharding_is_shown_on_both_sides(inside, outside, detail):
    found = find_aliasing(
        module(["f32[4]"], ["f32[16]"]),
        Signature(
            (leaf("state['w']", 0, dimensions=(16,), sharding=inside),),
            (result("['w']", 0, dimensions=(16,), sharding=outside),),
        ),
    )
    w = outcome(found, "state['w']")
    assert w.reason is Reason.SHARDING_DIFFERS
    assert w.detail.startswith(detail)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("PartitionSpec('x',)", "PartitionSpec('x', None)"),
        ("PartitionSpec(None, None)", "PartitionSpec()"),
        ("PartitionSpec('x', None, 'y')", "P('x', None, 'y', None)"),
        ("PartitionSpec('x',)", "GSPMDSharding"),  # nothing to compare
    ],
)
def test_two_ways_to_write_one_sharding_are_no_difference(inside, outside):
    found = find_aliasing(
        module(["f32[4]"], ["f32[4]"]),
        Signature(
            (leaf("state['w']", 0, sharding=inside),), (result("['w']", 0, sharding=outside),)
        ),
    )
    assert outcome(found, "state['w']").reason is Reason.UNUSED


def test_a_leaf_whose_result_another_took_names_the_other():
    found = find_aliasing(
        module(["f32[4]", "f32[4]"], ["f32[4]"], "{0}: (1, {}, may-alias)", "(0, {})"),
        Signature(
            (leaf("state['w']", 0), leaf("spare", 1)),
            (result("['w']", 0),),
        ),
    )
    assert outcome(found, "state['w']").reason is Reason.TAKEN
    assert "spare" in outcome(found, "state['w']").detail


def test_a_leaf_without_a_path_among_the_results_is_matched_by_shape():
    signature = Signature(
        (leaf("state['old']", 0), leaf("state['w']", 1, dimensions=(8,))),
        (result("[0]['w']", 0, dimensions=(8,)), result("[1]", 1, dimensions=())),
    )
    alias = "{0}: (1, {}, may-alias)"
    nothing = find_aliasing(module(["f32[4]", "f32[8]"], ["f32[8]", "f32[]"], alias), signature)
    assert outcome(nothing, "state['old']").reason is Reason.NO_MATCHING_OUTPUT
    assert outcome(nothing, "state['old']").detail == (
        "no result is f32[4], and the step never reads it"
    )


def test_a_dropped_leaf_is_known_as_dropped_and_counts_its_bytes():
    found = find_aliasing(
        module(["f32[4]"], ["f32[4]"], "{0}: (0, {}, may-alias)"),
        Signature(
            (leaf("state['w']", 0), leaf("state['unused']", None, "bf16", (2, 3))),
            (result("['w']", 0),),
        ),
    )
    unused = outcome(found, "state['unused']")
    assert (unused.reason, unused.dropped, unused.bytes) == (Reason.DROPPED, True, 12)


def test_a_leaf_that_jax_hands_through_is_no_trouble():
    found = find_aliasing(
        module(["f32[4]"], ["f32[4]"], "{0}: (0, {}, may-alias)"),
        Signature(
            (leaf("state['w']", 0), leaf("state['kept']", None)),
            (result("[0]['w']", 0), result("[0]['kept']", None)),
        ),
    )
    assert outcome(found, "state['kept']").reason is Reason.FORWARDED
    assert not found.not_aliased


def test_a_donated_leaf_that_fits_but_was_not_joined_says_so():
    found = find_aliasing(
        module(["f32[4]"], ["f32[4]"], donor="(0, {})"),
        Signature((leaf("state['w']", 0),), (result("['w']", 0),)),
    )
    assert outcome(found, "state['w']").reason is Reason.UNUSED


def donated_over_eight(result_shape, donor="(0, {})"):
    """A partitioned module that was given one donated array and kept it as a donor."""
    return parse_text(
        f"HloModule m, buffer_donor={{ {donor} }}, num_partitions=8\n"
        "ENTRY e {\n p0 = f32[4]{0} parameter(0)\n"
        f' ROOT r = {result_shape} custom-call(p0), custom_call_target="made"\n}}'
    )


def test_a_donor_that_xla_left_over_on_many_devices_names_the_missing_out_shardings():
    found = find_aliasing(
        donated_over_eight("f32[4]{0}"),
        Signature(
            (leaf("state['w']", 0, dimensions=(32,), sharding="PartitionSpec('x',)"),),
            (result("['w']", 0, dimensions=(32,), sharding="PartitionSpec('x',)"),),
        ),
    )
    w = outcome(found, "state['w']")
    assert w.reason is Reason.DONOR_LEFT
    assert "8 devices" in w.detail
    assert "out_shardings" in w.detail


def test_a_result_in_host_memory_differs_in_memory_space():
    found = find_aliasing(
        donated_over_eight("f32[4]{0:S(5)}"),
        Signature((leaf("state['w']", 0),), (result("['w']", 0),)),
    )
    w = outcome(found, "state['w']")
    assert w.reason is Reason.MEMORY_SPACE_DIFFERS
    assert "f32[4]{0:S(5)}" in w.detail
    assert "memory space 0" in w.detail


def test_another_layout_is_shown_on_both_sides():
    text = (
        "HloModule m, buffer_donor={ (0, {}) }\nENTRY e {\n"
        " p = f32[4,6]{1,0} parameter(0)\n ROOT r = f32[4,6]{0,1} negate(p)\n}"
    )
    signature = Signature(
        (leaf("state['w']", 0, dimensions=(4, 6)),), (result("['w']", 0, dimensions=(4, 6)),)
    )
    w = outcome(find_aliasing(parse_text(text), signature), "state['w']")
    assert w.reason is Reason.LAYOUT_DIFFERS
    assert w.detail == "goes in as f32[4,6]{1,0}, ['w'] is f32[4,6]{0,1}"


def test_a_dump_tells_a_changed_dtype_by_the_convert_on_the_way(fixtures_dir, session_of):
    from hloscope.passes.aliasing import Aliasing

    text = (fixtures_dir / "compiled" / "today" / "gpu_dtype_donate.hlo").read_text()
    (a,) = session_of(text).get(Aliasing).leaves
    assert (a.site.opcode, a.site.shape.dtype, a.bytes) == ("convert", "bf16", 1024 * 1024 * 4)
    assert (a.site.location.file, a.site.location.line) == ("gpu4.py", 41)
    assert a.partner.index == 0


def test_a_bare_dump_tells_not_offered_from_no_result():
    found = find_aliasing(
        module(
            ["f32[4]", "f32[6]", "f32[8]"],
            ["f32[8]", "f32[4]"],
            "{0}: (2, {}, may-alias)",
        ),
        Signature(
            (
                leaf("state['a']", 0, donated=None),
                leaf("state['b']", 1, dimensions=(6,), donated=None),
                leaf("state['c']", 2, dimensions=(8,)),
            ),
            (result("result 0", 0, dimensions=(8,)), result("result 1", 1)),
            basis="inferred",
        ),
    )
    assert outcome(found, "state['a']").reason is Reason.NOT_DONATED
    assert outcome(found, "state['b']").reason is Reason.NO_MATCHING_OUTPUT


def test_prefixes_are_settled_once_for_all_leaves_of_an_argument():
    # The step returns (loss, gradients, state): gradients have the same paths.
    paths = ["w", "v", "u"]
    found = find_aliasing(
        module(
            ["f32[4]", "f32[4]", "bf16[4]"],
            ["f32[]"] + ["f32[4]"] * 6,
            "{4}: (0, {}, may-alias), {5}: (1, {}, may-alias)",
        ),
        Signature(
            tuple(
                leaf(f"state['{p}']", n, "bf16" if p == "u" else "f32") for n, p in enumerate(paths)
            ),
            (
                result("[0]", 0, dimensions=()),
                *(result(f"[1]['{p}']", 1 + n) for n, p in enumerate(paths)),
                *(result(f"[2]['{p}']", 4 + n) for n, p in enumerate(paths)),
            ),
        ),
    )
    u = outcome(found, "state['u']")
    assert (u.reason, u.partner.path) == (Reason.DTYPE_DIFFERS, "[2]['u']")


def test_a_result_is_the_partner_of_one_argument_only():
    # params and mu have the same paths and shapes; params is aliased, so mu becomes the other.
    found = find_aliasing(
        module(["f32[4]", "bf16[4]"], ["f32[4]", "f32[4]"], "{0}: (0, {}, may-alias)"),
        Signature(
            (leaf("params['w']", 0), leaf("mu['w']", 1, "bf16")),
            (result("[0]['w']", 0), result("[1]['w']", 1)),
        ),
    )
    mu = outcome(found, "mu['w']")
    assert (mu.reason, mu.partner.path) == (Reason.DTYPE_DIFFERS, "[1]['w']")


def test_a_signature_that_does_not_fit_the_module_is_unavailable():
    signature = Signature((leaf("state['w']", 7),), (result("['w']", 0),))
    with pytest.raises(Unavailable, match="which parameter"):
        find_aliasing(module(["f32[4]"], ["f32[4]"]), signature)


def test_a_signature_whose_numbers_are_unknown_is_unavailable_not_dropped():
    signature = Signature((leaf("state['w']", None),), (result("['w']", 0),))
    with pytest.raises(Unavailable, match="which parameter"):
        find_aliasing(module(["f32[4]"], ["f32[4]"]), signature)


@pytest.mark.parametrize(
    ("file", "aliased", "reasons"),
    [
        ("cpu_donate.hlo", 5, []),
        ("cpu_donate_keep.hlo", 1, []),
        ("gpu_swap_donate.hlo", 2, []),
        ("gpu_pass_donate.hlo", 2, []),
        ("gpu_dus_donate.hlo", 1, []),
        ("gpu_diffshape_donate.hlo", 1, []),
        ("gpu_dtype_donate.hlo", 0, [Reason.DTYPE_DIFFERS]),
        ("gpu_reuse_donate.hlo", 1, []),
    ],
)
def test_recorded_donations(fixtures_dir, session_of, file, aliased, reasons):
    from hloscope.passes.aliasing import Aliasing

    text = (fixtures_dir / "compiled" / "today" / file).read_text()
    found = session_of(text).get(Aliasing)
    assert sum(one.aliased for one in found.leaves) == aliased
    assert [one.reason for one in found.not_aliased] == reasons


def test_a_dropped_leaf_whose_new_value_comes_back_is_kept_by_keep_unused():
    found = find_aliasing(
        module(["f32[4]"], ["f32[4]", "f32[8]"], "{0}: (0, {}, may-alias)"),
        Signature(
            (leaf("state['w']", 0), leaf("state['g']", None, dimensions=(8,))),
            (result("['w']", 0), result("['g']", 1, dimensions=(8,))),
        ),
    )
    g = outcome(found, "state['g']")
    assert g.reason is Reason.REPLACED
    assert "['g'] gets other memory" in g.detail
    assert "keep_unused=True" in g.fix


@pytest.mark.parametrize(
    ("spare", "results", "why", "fix"),
    [
        (
            leaf("state['a']", 0),
            (result("['w']", 0),),
            "which has no result of its own",
            "Return a new value of state['a'] too",
        ),
        (
            leaf("state['a']", 0),
            (result("['w']", 0), result("['a']", 1, "bf16")),
            "['w'] lives in the buffer of state['a'], which goes in as f32, ['a'] is bf16",
            "Cast the new value back before it is returned as ['a']: .astype(jnp.float32)",
        ),
        (
            leaf("state['a']", 0),
            (result("['w']", 0), result("['a']", 1, dimensions=(6,))),
            "whose own result ['a'] has another shape",
            "Let ['a'] come back as state['a'] went in",
        ),
        (
            leaf("state['a']", 0),
            (result("['w']", 0), result("['a']", 1)),
            "['w'] lives in the buffer of state['a']",
            "in the order of the arguments",
        ),
    ],
)
def test_a_result_that_another_leaf_took_says_what_that_leaf_lacks(spare, results, why, fix):
    found = find_aliasing(
        module(
            ["f32[4]", "f32[4]"],
            [f"{one.dtype}[{one.dimensions[0]}]" for one in results],
            "{0}: (0, {}, may-alias)",
        ),
        Signature((spare, leaf("state['w']", 1)), results),
    )
    w = outcome(found, "state['w']")
    assert w.reason is Reason.TAKEN
    assert w.detail.endswith(why)
    assert fix in w.fix
    assert outcome(found, "state['a']").displaced is (len(results) > 1)


def test_the_memory_that_only_the_head_of_the_module_names_counts():
    # The CPU's compiler takes it off the instructions.
    text = (
        "HloModule m, input_output_alias={ ALIAS }, buffer_donor={ DONOR }, "
        "entry_computation_layout={(f32[4]{0:S(5)})->f32[4]{0}}\nENTRY e {\n"
        " p = f32[4]{0} parameter(0)\n ROOT r = f32[4]{0} negate(p)\n}"
    )
    signature = Signature((leaf("state", 0, memory_kind="pinned_host"),), (result("", 0),))
    for alias, donor in (("{}: (0, {}, may-alias)", ""), ("", "(0, {})")):
        parsed = parse_text(text.replace("ALIAS", alias).replace("DONOR", donor))
        state = outcome(find_aliasing(parsed, signature), "state")
        assert state.reason is Reason.MEMORY_SPACE_DIFFERS
        assert not state.aliased
        assert "f32[4]{0:S(5)} in pinned_host" in state.detail
        assert ("running that fails" in state.detail) == bool(alias)


def test_a_dump_does_not_call_a_leaf_unoffered_whose_result_lies_elsewhere():
    parsed = parse_text(
        "HloModule m\nENTRY e {\n p = f32[4]{0} parameter(0)\n ROOT r = f32[4]{0:S(5)} negate(p)\n}"
    )
    found = find_aliasing(
        parsed,
        Signature((leaf("state", 0, donated=None),), (result("result 0", 0),), basis="inferred"),
    )
    assert outcome(found, "state").reason is Reason.MEMORY_SPACE_DIFFERS


def test_what_is_donated_already_stands_in_the_advice_to_donate_more():
    found = find_aliasing(
        module(["f32[4]", "f32[8]"], ["f32[4]", "f32[8]"], "{0}: (0, {}, may-alias)"),
        Signature(
            (leaf("params['w']", 0), leaf("opt_state.mu", 1, dimensions=(8,), donated=False)),
            (result("[0]['w']", 0), result("[1].mu", 1, dimensions=(8,))),
        ),
    )
    assert outcome(found, "opt_state.mu").fix == (
        "Donate opt_state: jax.jit(step, donate_argnames=('params', 'opt_state'))."
    )


def test_a_convert_without_a_line_takes_that_of_the_program_before_optimization():
    text = (
        "HloModule m, buffer_donor={ (0, {}) }\nENTRY e {\n p = bf16[4] parameter(0)\n"
        " c = f32[4] convert(p)WHERE\n ROOT r = f32[4] negate(c)\n}"
    )
    line = ', metadata={op_name="jit(step)/convert" source_file="train.py" source_line=7}'
    optimized = parse_text(text.replace("WHERE", ""))
    lowered = LoweredModule(lambda: parse_text(text.replace("WHERE", line)))
    signature = Signature((leaf("state", 0, "bf16"),), (result("", 0),))
    assert outcome(find_aliasing(optimized, signature), "state").site.location is None
    state = outcome(find_aliasing(optimized, signature, lowered), "state")
    assert state.detail == "goes in as bf16, the result is f32 (c at train.py:7)"
    assert ".astype(jnp.bfloat16), behind train.py:7" in state.fix
