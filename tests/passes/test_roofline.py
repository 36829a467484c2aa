"""Floors by hand on a made-up chip, and beside the compiler's estimate on recorded modules."""

import pytest

from hloscope.chips import CHIPS, Chip, ChipKind
from hloscope.ir import parse_text
from hloscope.passes.roofline import Bound, Roofline

# 1 TFLOP/s of bf16, 1 GB/s of memory, links of 0.5 GB/s each way.
TOY = Chip(
    "toy",
    "any",
    ChipKind.GPU,
    "toy",
    {"bf16": 1e12},
    memory_bandwidth=1e9,
    link_bandwidth=1e9,
)
BARE = Chip("bare", "any", ChipKind.CPU, "bare")


@pytest.fixture(scope="session")
def roofline_of(session_of):
    return lambda program, chip=TOY: session_of(program, chip).get(Roofline)


def row_of(roofline, name):
    return next(row for row in roofline.rows if row.instruction.name == name)


ADD = "add {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT s = f32[] add(p, q)\n}\n\n"
DOT = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def test_each_operation_takes_the_larger_of_its_times(roofline_of):
    roofline = roofline_of(
        "HloModule m, replica_count=4\n\n" + ADD + "ENTRY e {\n"
        "  a = bf16[1000,4000] parameter(0)\n  b = bf16[4000,1000] parameter(1)\n"
        f"  d = bf16[1000,1000] dot(a, b){DOT}\n"
        "  n = bf16[1000,1000] negate(d)\n"
        "  ROOT r = bf16[1000,1000] all-reduce(n), replica_groups={{0,1,2,3}}, to_apply=add\n}\n"
    )
    dot, negate, reduce = (row_of(roofline, name) for name in "dnr")
    # 2*1000*1000*4000 FLOPs at 1e12/s; (4e6 + 4e6 + 1e6) * 2 bytes at 1e9/s.
    assert (dot.flops, dot.moved_bytes) == (8_000_000_000, 18_000_000)
    assert dot.compute == pytest.approx(0.008)
    assert dot.memory == pytest.approx(0.018)
    assert dot.intensity == pytest.approx(8e9 / 18e6)
    assert (dot.bound, dot.seconds) == (Bound.MEMORY, dot.memory)
    # 2e6 bytes in, 2e6 out.
    assert (negate.bound, negate.seconds) == (Bound.MEMORY, pytest.approx(0.004))
    assert negate.flops == 0
    # 2 * 2e6 * 3/4 bytes at 0.5e9/s one way; memory 4e6 bytes.
    assert reduce.wire_bytes == 3_000_000
    assert (reduce.bound, reduce.seconds) == (Bound.LINK, pytest.approx(0.006))
    step = roofline.step
    assert step.serial.low == step.serial.nominal == pytest.approx(0.018 + 0.004 + 0.006)
    assert step.floor.low == pytest.approx(0.028)
    assert step.compute.low == pytest.approx(0.008)
    assert step.memory.low == pytest.approx(0.026)
    assert step.link.low == pytest.approx(0.006)
    assert step.utilisation == pytest.approx(0.008 / 0.028)
    assert not roofline.unknown


def test_asynchronous_work_is_hidden_from_the_floor_as_far_as_it_can_be(roofline_of):
    text = (
        "HloModule m, replica_count=4\n\nENTRY e {{\n  a = bf16[1000,1000] parameter(0)\n"
        "  s = (bf16[1000,1000], bf16[4000,1000]) all-gather-start(a), "
        "replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}\n"
        "  n = bf16[{rows},1000] {operation}\n"
        "  g = bf16[4000,1000] all-gather-done(s)\n"
        "  ROOT t = (bf16[{rows},1000], bf16[4000,1000]) tuple(n, g)\n}}\n"
    )
    # Sent: 8e6 * 3/4 bytes at 0.5e9/s. Memory: 2e6 + 8e6 bytes. It takes 12 ms.
    short = roofline_of(text.format(rows=1000, operation="negate(a)")).step
    assert short.serial.low == pytest.approx(0.012 + 0.004)
    # The links alone need 12 ms, and memory 10 + 4.
    assert short.floor.low == pytest.approx(0.014)
    long = roofline_of(text.format(rows=32000, operation="iota(), iota_dimension=0")).step
    assert long.serial.low == pytest.approx(0.012 + 0.064)
    assert long.floor.low == pytest.approx(0.064 + 0.010)


LOOP = """HloModule m

cond {{
  t = (s32[], bf16[1000,1000]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] {bound}
  ROOT lt = pred[] compare(i, n), direction=LT
}}

body {{
  t = (s32[], bf16[1000,1000]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = bf16[1000,1000] get-tuple-element(t), index=1
  y = bf16[1000,1000] negate(x)
  ROOT r = (s32[], bf16[1000,1000]) tuple(next, y)
}}

ENTRY e {{
  a = bf16[1000,1000] parameter(0)
  zero = s32[] {start}
  init = (s32[], bf16[1000,1000]) tuple(zero, a)
  loop = (s32[], bf16[1000,1000]) while(init), condition=cond, body=body
  ROOT y = bf16[1000,1000] get-tuple-element(loop), index=1
}}
"""


def test_loops_are_multiplied(roofline_of):
    roofline = roofline_of(LOOP.format(bound="constant(7)", start="constant(0)"))
    negate = row_of(roofline, "y")
    assert negate.times.exact == 7
    assert negate.nominal_seconds == pytest.approx(7 * 0.004)
    # The counter: 12 bytes seven times, and 9 bytes of the comparison eight times.
    assert roofline.step.floor.low == pytest.approx(7 * 0.004 + (7 * 12 + 8 * 9) * 1e-9)


def test_a_loop_of_unknown_length_leaves_a_floor_and_what_one_run_takes(roofline_of):
    step = roofline_of(LOOP.format(bound="constant(7)", start="parameter(1)")).step
    # The condition runs at least once.
    assert step.floor.low == pytest.approx(9e-9)
    assert step.floor.nominal == pytest.approx(0.004, rel=1e-3)


def test_a_conditional_takes_at_least_its_cheapest_branch(roofline_of):
    step = roofline_of(
        "HloModule m\n\nt {\n  p = bf16[1000] parameter(0)\n  ROOT n = bf16[1000] negate(p)\n}\n\n"
        "f {\n  p = bf16[1000] parameter(0)\n  a = bf16[1000] negate(p)\n"
        "  ROOT b = bf16[1000] negate(a)\n}\n\n"
        "ENTRY e {\n  p = pred[] parameter(0)\n  x = bf16[1000] parameter(1)\n"
        "  ROOT c = bf16[1000] conditional(p, x, x), true_computation=t, false_computation=f\n}\n"
    ).step
    assert step.floor.low == pytest.approx(4e-6)
    assert step.floor.nominal == pytest.approx(8e-6)


def test_products_in_fusions_belong_to_the_fusion(roofline_of):
    roofline = roofline_of(
        "HloModule m\n\ninner {\n  a = bf16[10,20] parameter(0)\n  b = bf16[20,30] parameter(1)\n"
        f"  ROOT d = bf16[10,30] dot(a, b){DOT}\n}}\n\n"
        "ENTRY e {\n  a = bf16[10,20] parameter(0)\n  b = bf16[20,30] parameter(1)\n"
        "  ROOT f = bf16[10,30] fusion(a, b), kind=kCustom, calls=inner\n}\n"
    )
    (row,) = roofline.rows
    assert (row.instruction.name, row.flops, row.units) == ("f", 12_000, ("bf16",))


UNKNOWN_CALL = (
    "HloModule m\n\nENTRY e {\n  a = f32[1000] parameter(0)\n"
    '  ROOT r = f32[1000] custom-call(a), custom_call_target="mine"\n}\n'
)


def test_a_call_that_nothing_is_known_of_makes_the_floor_leave_its_work_out(roofline_of):
    roofline = roofline_of(UNKNOWN_CALL)
    (row,) = roofline.rows
    assert row.bound is Bound.UNKNOWN
    assert row.flops is None
    assert row.seconds == row.memory == pytest.approx(8e-6)
    assert roofline.unknown == [row]
    assert "mine" in row.unknown[0]


def test_a_type_without_a_peak_is_unknown_and_not_free(roofline_of):
    roofline = roofline_of(
        "HloModule m\n\nENTRY e {\n  a = f64[10,20] parameter(0)\n  b = f64[20,30] parameter(1)\n"
        f"  ROOT d = f64[10,30] dot(a, b){DOT}\n}}\n"
    )
    (row,) = roofline.rows
    assert (row.flops, row.compute, row.bound) == (12_000, None, Bound.UNKNOWN)
    assert row.unknown == ("no peak of toy is known for f64",)


def test_a_chip_without_figures_gives_no_time_at_all(roofline_of):
    roofline = roofline_of(UNKNOWN_CALL.replace("custom-call(a)", "negate(a)"), BARE)
    (row,) = roofline.rows
    assert (row.seconds, row.bound, row.moved_bytes) == (None, Bound.UNKNOWN, 8000)
    assert roofline.step.floor.low == 0
    assert roofline.step.utilisation is None


def test_work_in_on_chip_memory_alone_is_unknown_and_not_free(roofline_of):
    text = (
        "HloModule m\n\nENTRY e {\n  a = f32[1024]{0:T(1024)S(1)} parameter(0)\n"
        "  ROOT r = f32[1024]{0:T(1024)S(1)} negate(a)\n}\n"
    )
    (row,) = roofline_of(text, CHIPS["v5e"]).rows
    assert (row.seconds, row.bound) == (None, Bound.UNKNOWN)
    assert row.unknown == ("no rate of on-chip memory is known",)


def test_a_chip_without_a_link_rate_leaves_exchanges_unknown(roofline_of):
    text = (
        "HloModule m, replica_count=2\n\nENTRY e {\n  a = f32[1024] parameter(0)\n"
        "  ROOT r = f32[2048] all-gather(a), replica_groups={{0,1}}, dimensions={0}\n}\n"
    )
    (row,) = roofline_of(text, CHIPS["v4"]).rows
    assert (row.wire_bytes, row.link, row.bound) == (4096, None, Bound.UNKNOWN)


def test_sizes_that_nothing_holds_are_unknown(roofline_of):
    dims = ",".join(["9999999999"] * 40)
    text = (
        f"HloModule m\n\nENTRY e {{\n  a = f32[{dims}] parameter(0)\n"
        f"  ROOT r = f32[{dims}] negate(a)\n}}\n"
    )
    (row,) = roofline_of(text).rows
    assert (row.seconds, row.bound) == (None, Bound.UNKNOWN)


def test_pairs_that_a_mask_hides_are_no_part_of_the_floor(fixtures_dir, roofline_of):
    path = fixtures_dir / "compiled" / "today" / "gpu_attn_causal.hlo"
    roofline = roofline_of(parse_text(path.read_text()), CHIPS["h100"])
    call = next(row for row in roofline.rows if row.instruction.opcode == "custom-call")
    # 4 x 8 heads of 1024 queries and keys, 64 wide, at 4 FLOPs a pair and element: of all pairs
    # half and the diagonal.
    assert call.flops == 4 * 4 * 8 * 64 * (1024 * 1025 // 2)


def recorded(fixtures_dir, name):
    path = fixtures_dir / "compiled" / "today" / f"{name}.hlo"
    return parse_text(path.read_text(), file=path.name)


def test_the_compilers_cycles_are_read_and_multiplied_by_the_loops(fixtures_dir, roofline_of):
    roofline = roofline_of(recorded(fixtures_dir, "tpu_m_scan_fsdp"), CHIPS["v5e"])
    cycles = {row.instruction.name: (row.cycles, row.times.exact) for row in roofline.rows}
    assert cycles["fusion.64"] == (141_232, 8)
    whole = sum(each * times for each, times in cycles.values() if each is not None)
    assert roofline.step.cycles.low == roofline.step.cycles.nominal == whole
    assert roofline.estimated == sum(each is not None for each, _ in cycles.values()) == 16


@pytest.mark.slow
def test_no_compiler_expects_products_to_take_less_than_their_floor(fixtures_dir, roofline_of):
    chip = CHIPS["v5e"]
    ratios = []
    for path in sorted((fixtures_dir / "compiled" / "today").glob("tpu_*.hlo")):
        ratios += [
            row.cycles / chip.clock_hz / row.compute
            for row in roofline_of(parse_text(path.read_text()), chip).rows
            if row.cycles is not None and row.compute
        ]
    assert len(ratios) > 50
    assert min(ratios) > 1
    # The largest product comes within 3% of it: clock, peak and count fit together.
    assert min(ratios) < 1.03


def test_a_recorded_training_step(fixtures_dir, roofline_of):
    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    roofline = roofline_of(parse_text(path.read_text()), CHIPS["v6e"])
    step = roofline.step
    # 32 layers over 4x8192 tokens a device. Products of weights alone, forward, recomputed and
    # twice backward: 8 FLOPs a weight and token, 6.98e9 weights in the layers.
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    least = 8 * layers * 4 * 8192 / 918e12
    assert least < step.compute.low < 1.5 * least
    assert max(step.compute.low, step.memory.low, step.link.low) <= step.floor.low
    assert step.floor.low < step.serial.low
    # Its reducers alone carry an estimate, and those are launched by nothing.
    assert roofline.estimated == 0
