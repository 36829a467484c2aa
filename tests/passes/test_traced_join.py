"""Traces held against their programs: durations are chosen, so rates follow by arithmetic."""

from dataclasses import replace

import pytest
from oracles.built_traces import BuiltTrace

from hloscope.chips import CHIPS
from hloscope.passes.roofline import Bound
from hloscope.passes.traced_executions import Runs
from hloscope.passes.traced_join import join_trace
from hloscope.traces.kernel_instructions import Link
from hloscope.traces.reading import read_trace
from hloscope.traces.steps import Steps, StepSource

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"

# Two products and an addition.
STEP = f"""HloModule jit_step

ENTRY main {{
  a = bf16[1024,4096] parameter(0)
  b = bf16[4096,2048] parameter(1)
  c = f32[512,512] parameter(2)
  gemm = bf16[1024,2048] dot(a, b), {DOT}
  wide = f32[512,512] dot(c, c), {DOT}
  sum = bf16[1024,2048] add(gemm, gemm)
  ROOT out = (bf16[1024,2048], f32[512,512]) tuple(sum, wide)
}}
"""
GEMM = 2 * 1024 * 2048 * 4096
WIDE = 2 * 512**3


def loop(config):
    return f"""HloModule jit_step

body {{
  p = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[64,64] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[64,64] dot(x, x), {DOT}
  ROOT r = (s32[], f32[64,64]) tuple(next, y)
}}

cond {{
  p = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] parameter(1)
  ROOT c = pred[] compare(i, i), direction=LT
}}

ENTRY main {{
  x0 = f32[64,64] parameter(0)
  zero = s32[] parameter(1)
  first = f32[64,64] negate(x0)
  init = (s32[], f32[64,64]) tuple(zero, first)
  w = (s32[], f32[64,64]) while(init), condition=cond, body=body{config}
  ROOT out = f32[64,64] get-tuple-element(w), index=1
}}
""".replace("  n = s32[] parameter(1)\n", "")


KNOWN = ', backend_config={"known_trip_count":{"n":"10"}}'


@pytest.fixture
def joined(tmp_path, session_of):
    def join(built, chip=None):
        trace = built.read(tmp_path) if isinstance(built, BuiltTrace) else built
        found = join_trace(trace, session_of, chip)
        return found, {each.name: each for each in found.operations}

    return join


def steps(number, *kernels, program=STEP, **options):
    built = BuiltTrace({3: program}, **options)
    for _ in range(number):
        built.run(3, *kernels)
    return built


def test_a_product_reaches_its_flops_by_the_time_that_its_kernels_took(joined):
    built = steps(5, ("gemm", "nvjet", 30), ("sum", "loop_add", 10))
    _, rows = joined(built)
    gemm, add = rows["gemm"], rows["sum"]
    assert gemm.flop_rate == pytest.approx(GEMM / 30e-6)
    assert gemm.of_peak == pytest.approx(GEMM / 30e-6 / 989.4e12)
    moved = 2 * (1024 * 4096 + 4096 * 2048 + 1024 * 2048)
    assert gemm.byte_rate == pytest.approx(moved / 30e-6)
    # 17.4 us of products at 989.4 TFLOP/s, 8.8 us of bytes at 3.35 TB/s.
    assert (gemm.bound, gemm.of_roof) == (Bound.COMPUTE, gemm.of_peak)
    assert add.flop_rate == 0
    assert add.of_peak is None
    assert add.of_bandwidth == pytest.approx(2 * 2 * 1024 * 2048 / 10e-6 / 3.35232e12)
    assert (add.bound, add.of_roof) == (Bound.MEMORY, pytest.approx(add.of_bandwidth))


def test_two_kernels_of_one_product_are_one_execution_of_both(joined):
    built = steps(5, ("gemm", "splitk", 25), ("gemm", "splitKreduce", 5), ("sum", "add", 1))
    _, rows = joined(built)
    assert rows["gemm"].executions == Runs(5, exact=False)
    assert rows["gemm"].seconds == pytest.approx(30e-6)
    assert rows["gemm"].flop_rate == pytest.approx(GEMM / 30e-6)


def test_a_kernel_that_runs_twice_an_execution_is_told_by_what_the_others_run(joined):
    twice = [("gemm", "half", 15), ("gemm", "half", 15)]
    _, rows = joined(steps(5, *twice, ("sum", "add", 1), ("wide", "simt", 1)))
    # Ten kernels, and two of three instructions say that there were five executions.
    assert rows["gemm"].executions.number == 5
    assert rows["gemm"].flop_rate == pytest.approx(GEMM / 30e-6)


def test_what_a_loop_runs_ten_times_has_ten_executions_in_each_of_the_programs(joined):
    kernels = [("first", "negate", 1)] + 10 * [("y", "gemm", 2)]
    _, rows = joined(steps(3, *kernels, program=loop(KNOWN)))
    assert rows["y"].executions.number == 30
    assert rows["y"].flop_rate == pytest.approx(2 * 64**3 / 2e-6)
    assert rows["first"].executions.number == 3


def test_as_many_executions_as_annotated_steps_are_certain(joined, tmp_path):
    trace = steps(6, ("gemm", "nvjet", 30), ("sum", "add", 1)).read(tmp_path)
    (host,) = trace.hosts
    (device,) = host.devices
    for annotated, certain in ((6, True), (3, True), (4, False), (1, False)):
        found = Steps(StepSource.ANNOTATED, "train", device.steps.rows[:annotated])
        of_steps = replace(host, devices=(replace(device, steps=found),))
        _, rows = joined(replace(trace, hosts=(of_steps,)))
        assert rows["gemm"].executions == Runs(6, exact=certain)


def test_a_loop_of_unknown_length_ran_as_often_as_its_kernels(joined):
    kernels = [("first", "negate", 1)] + 7 * [("y", "gemm", 2)]
    found, rows = joined(steps(3, *kernels, program=loop("")))
    assert rows["y"].executions == Runs(21, exact=False)
    assert rows["y"].flop_rate == pytest.approx(2 * 64**3 / 2e-6)
    (program,) = found.programs
    assert program.flops == 21 * 2 * 64**3
    assert program.missing == ()


def test_utilisation_holds_each_type_against_its_own_peak(joined):
    built = steps(4, ("gemm", "nvjet", 30), ("wide", "simt", 8), ("sum", "add", 10))
    found, _ = joined(built)
    (program,) = found.programs
    assert program.flops == 4 * (GEMM + WIDE)
    # A float32 product may use TensorFloat-32.
    assert program.units == {
        "bf16": pytest.approx(4 * GEMM / 989.4e12),
        "tf32": pytest.approx(4 * WIDE / 494.7e12),
    }
    assert program.peak_seconds == pytest.approx(sum(program.units.values()))
    # 12 kernels, a microsecond between any two.
    assert found.window == (4 * 48 + 11) * 1_000_000
    assert found.joined == found.counted == found.time == 4 * 48 * 1_000_000


def test_devices_that_ran_one_program_are_added_up(joined):
    built = BuiltTrace({3: STEP})
    for gpu, length in ((0, 30), (1, 50)):
        for _ in range(2):
            built.run(3, ("gemm", "nvjet", length), gpu=gpu)
    found, rows = joined(built)
    assert rows["gemm"].executions.number == 4
    assert rows["gemm"].seconds == pytest.approx(40e-6)
    (program,) = found.programs
    assert (program.devices, program.runs.number) == (2, 4)
    assert found.window == (61 + 101) * 1_000_000


def test_a_rate_above_the_peak_is_flagged(joined):
    _, rows = joined(steps(3, ("gemm", "nvjet", 10), ("sum", "add", 1)))
    assert rows["gemm"].of_peak == pytest.approx(GEMM / 10e-6 / 989.4e12)
    assert rows["gemm"].is_above_peak
    assert rows["sum"].is_above_bandwidth
    assert not rows["sum"].is_above_peak


def test_without_a_known_chip_rates_have_no_shares(joined):
    card = {"device_vendor": "Nvidia", "gpu_device_name": "NVIDIA GeForce GTX 1080 Ti"}
    found, rows = joined(steps(3, ("gemm", "nvjet", 30), card=card))
    assert rows["gemm"].flop_rate == pytest.approx(GEMM / 30e-6)
    assert rows["gemm"].of_peak is rows["gemm"].of_roof is None
    (program,) = found.programs
    assert program.peak_seconds == 0
    assert set(program.missing) == {
        f"no peak of NVIDIA GeForce GTX 1080 Ti is known for {dtype}" for dtype in ("bf16", "f32")
    }


def test_a_chip_that_is_named_goes_before_what_the_recording_says(joined):
    found, rows = joined(steps(3, ("gemm", "nvjet", 300)), CHIPS["a100"])
    assert rows["gemm"].of_peak == pytest.approx(GEMM / 300e-6 / 312e12)
    assert [each.how for each in found.chips] == ["as given by --chip"]


def test_kernels_without_a_known_instruction_have_no_rate(joined):
    built = steps(3, ("gemm", "nvjet", 30))
    built.kernel("unheard_of", 1000, 30)
    found, rows = joined(built)
    assert rows[""].link is Link.NONE
    assert rows[""].flop_rate is rows[""].byte_rate is None
    assert found.joined == 90 * 1_000_000
    assert found.time == 120 * 1_000_000


def test_a_program_that_cannot_be_read_is_held_against_nothing_and_said_so(joined, tmp_path):
    trace = steps(3, ("gemm", "nvjet", 30)).read(tmp_path)
    (host,) = trace.hosts
    broken = replace(trace, hosts=(replace(host, programs={3: b"\x0a\xff\xff"}),))
    found, rows = joined(broken)
    assert found.programs == ()
    assert rows["gemm"].flop_rate is None
    assert "jit_step is held against nothing" in found.notes[0]


@pytest.fixture
def recorded(fixtures_dir, session_of):
    def read(name):
        found = join_trace(read_trace(fixtures_dir / "xplane" / f"{name}.xplane.pb"), session_of)
        return found, {each.name: each for each in found.operations}

    return read


def test_a_recorded_fused_attention_reaches_the_flops_of_its_shapes(recorded):
    found, rows = recorded("amd_mi355x_te_fused_attention")
    assert [each.chip.name for each in found.chips] == ["mi355x"]
    # Forward: two products for 2 x 16 batches and heads of 2048 queries, each of which
    # meets (2048 + 1) / 2 keys under a causal mask, of 128 channels; backward: five.
    (program,) = found.programs
    assert program.runs.number == 5
    visible = 2 * 2 * (2 * 16) * 2048 * 128 * 2049 // 2
    forward = rows["te_fused_attn_forward_ffi.10"]
    assert (forward.kernels, forward.executions.number) == (10, 5)
    assert forward.row.flops == visible
    assert forward.flop_rate == pytest.approx(visible / forward.seconds)
    backward = rows["te_fused_attn_backward_ffi.18"]
    assert (backward.kernels, backward.executions.number) == (25, 5)
    assert backward.row.flops == pytest.approx(2.5 * visible, rel=1e-9)
    # All that multiplies stays below the vendor's peak, and above a hundredth of it.
    shares = [each.of_peak for each in found.operations if each.of_peak is not None]
    assert len(shares) == 10
    assert 0.01 < min(shares) < max(shares) < 1
    assert found.joined == found.time


def test_a_recorded_convolution_takes_the_flops_of_its_shapes(recorded):
    found, rows = recorded("amd_mi300x_conv_old_format")
    convolution = rows["cudnn-conv.1.0"]
    # 16 channels to 5120 by a kernel of 1 x 2 x 2, without what lies in the padding.
    assert convolution.row.flops == 2 * 5120 * 16 * 32 * 60 * 104
    assert (convolution.kernels, convolution.executions.number) == (10, 5)
    assert 0 < convolution.of_peak < 1
    (program,) = found.programs
    assert (program.name, program.devices) == ("jit_forward_3d_conv", 1)
    # The device that only copied is in no program.
    assert found.joined < found.time


def test_a_loop_recorded_on_this_processor_ran_what_it_was_told_to(tmp_path, session_of):
    import jax
    import jax.numpy as jnp

    def step(x, w):
        def layer(h, _):
            return jnp.tanh(h @ w), None

        return jax.lax.scan(layer, x, None, length=10)[0]

    x, w = jnp.ones((256, 128)), jnp.ones((128, 128))
    with jax.default_device(jax.devices("cpu")[0]):
        compiled = jax.jit(step).lower(x, w).compile()
        compiled(x, w).block_until_ready()
        with jax.profiler.trace(str(tmp_path)):
            for _ in range(3):
                compiled(x, w).block_until_ready()
    found = join_trace(read_trace(tmp_path), session_of)
    products = [each for each in found.operations if each.row is not None and each.row.flops]
    # One product of 256 x 128 x 128 an iteration, whatever XLA fused it with.
    assert sum(each.row.flops * each.executions.number for each in products) == (
        3 * 10 * 2 * 256 * 128 * 128
    )
    assert all(each.executions.exact for each in products)
    (program,) = [each for each in found.programs if each.flops]
    assert (program.runs, program.flops) == (Runs(3, exact=True), 3 * 10 * 2 * 256 * 128 * 128)
    # A processor's peak is not known, so that nothing is a share of it.
    assert all(each.of_peak is None for each in found.operations)
    for each in products:
        assert each.flop_rate == pytest.approx(each.row.flops / each.seconds)
