import pytest

from hloscope.passes.alias_copies import AliasCopies, CopyKind
from hloscope.pipeline.findings import Severity

MIB = 1 << 20

LOOP = """
HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
body {
  c = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[512,512]{1,0} get-tuple-element(c), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  kept = f32[512,512]{1,0} copy(x)
  y = f32[512,512]{1,0} multiply(x, kept)
  ROOT r = (s32[], f32[512,512]) tuple(next, y)
}
condition {
  c = (s32[], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  state = f32[512,512]{1,0} parameter(0)
  zero = s32[] constant(0)
  copied = f32[512,512]{1,0} copy(state)
  start = (s32[], f32[512,512]) tuple(zero, copied)
  loop = (s32[], f32[512,512]) while(start), condition=condition, body=body
  out = f32[512,512]{1,0} get-tuple-element(loop), index=1
  old = f32[512,512]{1,0} negate(state)
  ROOT t = (f32[512,512], f32[512,512]) tuple(out, old)
}
"""


def copies_of(session_of, text):
    return session_of(text).get(AliasCopies).copies


def test_a_loop_that_carries_a_copy_and_copies_in_each_iteration(session_of):
    each, carried = copies_of(session_of, LOOP)
    assert (each.instruction.name, each.kind, each.times.exact) == ("kept", CopyKind.ITERATION, 5)
    assert (carried.instruction.name, carried.kind) == ("copied", CopyKind.CARRIED)
    assert [reader.name for reader in carried.forced_by] == ["old"]
    assert carried.bytes == each.bytes == 512 * 512 * 4


def one_copy(source, target, asynchronous=False):
    body = f"  c = {target} copy(p)\n"
    if asynchronous:
        body = f"  s = ({target}, {source}, u32[]) copy-start(p)\n  c = {target} copy-done(s)\n"
    return (
        "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }\nENTRY e {\n"
        f"  p = {source} parameter(0)\n{body}"
        "  n = f32[512,512]{1,0} negate(c)\n  o = f32[512,512]{1,0} exponential(c)\n"
        "  ROOT t = (f32[512,512]{1,0}, f32[512,512]{1,0}) tuple(n, o)\n}"
    )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_copy_in_one_place_and_layout_defeats_the_alias(session_of, asynchronous):
    shape = "f32[512,512]{1,0}"
    (copy,) = copies_of(session_of, one_copy(shape, shape, asynchronous))
    assert copy.kind is CopyKind.READ_LATER
    assert copy.defeats
    # No schedule tells which of the two comes last.
    assert [reader.name for reader in copy.forced_by] == ["n", "o"]
    assert copy.bytes == MIB


def test_a_copy_to_another_layout_is_a_relayout_and_defeats_nothing(session_of, findings_of):
    text = one_copy("f32[512,512]{1,0}", "f32[512,512]{0,1}")
    (copy,) = copies_of(session_of, text)
    assert copy.kind is CopyKind.RELAYOUT
    assert not copy.defeats
    assert findings_of("HS703", text) == ()


def test_a_prefetch_to_another_memory_is_no_copy_of_these(session_of):
    text = one_copy("f32[512,512]{1,0}", "f32[512,512]{1,0:S(1)}", asynchronous=True)
    assert copies_of(session_of, text) == ()


# Of [1024,1024] bfloat16: 1024 * 1024 * 2 bytes = 2 MiB each.
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("cpu_donate.hlo", []),
        ("gpu_dus_donate.hlo", []),
        ("gpu_dtype_donate.hlo", []),
        ("gpu_reuse_donate.hlo", [("a", CopyKind.READ_LATER)]),
        ("gpu_swap_donate.hlo", [("b", CopyKind.READ_LATER), ("b", CopyKind.BESIDE)]),
        (
            "gpu_pass_donate.hlo",
            [("b", CopyKind.RETURNED), ("a", CopyKind.EXCHANGED), ("a", CopyKind.RETURNED)],
        ),
    ],
)
def test_recorded_donations(fixtures_dir, session_of, findings_of, file, expected):
    text = (fixtures_dir / "compiled" / "today" / file).read_text()
    found = copies_of(session_of, text)
    assert [(copy.leaf.leaf.path, copy.kind) for copy in found] == expected
    assert {copy.bytes for copy in found} <= {2 * MIB}
    # One finding for each argument and reason; each of these has one copy.
    assert sum(finding.cost.value for finding in findings_of("HS703", text)) == (
        2 * MIB * len(expected)
    )


def test_the_reused_argument_names_both_that_force_its_copy(fixtures_dir, findings_of):
    text = (fixtures_dir / "compiled" / "today" / "gpu_reuse_donate.hlo").read_text()
    (finding,) = findings_of("HS703", text)
    assert finding.severity is Severity.WARNING
    assert finding.cost.value == 2 * MIB
    # The sum comes after the product has written the new value; the product
    # itself could not work in place either.
    assert "forced by loop_add_fusion (gpu4.py:38), gemm_fusion_dot_general.1" in finding.notes[0]
    assert (finding.site.file, finding.site.line) == ("gpu4.py", 38)


def test_a_tpus_training_step_is_not_accused_of_its_prefetches(fixtures_dir, session_of):
    text = (fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo").read_text()
    (relayout,) = copies_of(session_of, text)
    assert relayout.kind is CopyKind.RELAYOUT
    # The embedding's transpose on the way to its all-gather: 128256 * 512 bfloat16.
    assert relayout.bytes == 128256 * 512 * 2
