"""A program's exchanges found in a trace of it, and in none of another program."""

import pytest
from oracles.traced_devices import US, embedded, gpu, tpu
from oracles.xspaces import space

from hloscope.chips import parse_target
from hloscope.passes.traced_exchanges import TracedExchange, TracedExchanges
from hloscope.traces.reading import read_trace

PROGRAM = """
HloModule jit_step, is_scheduled=true, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

COMPUTATIONS
ENTRY main {
  p = f32[256]{0} parameter(0)
ENTRY_BODY
}
"""
OVER = "channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true, to_apply=add"
PAIR = f"""  all-reduce-start.5 = f32[256]{{0}} all-reduce-start(p), {OVER}
  negate.1 = f32[256]{{0}} negate(p)
  ROOT all-reduce-done.9 = f32[256]{{0}} all-reduce-done(all-reduce-start.5)"""
PLAIN = f"  ROOT all-reduce.1 = f32[256]{{0}} all-reduce(p), {OVER}"


def _program(body, computations=""):
    return PROGRAM.replace("COMPUTATIONS", computations).replace("ENTRY_BODY", body)


@pytest.fixture
def traced(session_of, tmp_path):
    """What a trace of some planes tells of a program."""

    def find(program, *planes):
        (tmp_path / "h.xplane.pb").write_bytes(space(*planes))
        trace = read_trace(tmp_path / "h.xplane.pb")
        return session_of(program, trace, parse_target("v5e").chip).get(TracedExchanges)

    return find


def test_a_start_is_found_together_with_the_end_that_waits(traced):
    lines = {
        "XLA Modules": [("jit_step(7)", 0, 40, None)],
        # Without the program in the trace nothing in it ties .9 to .5; this program does.
        "XLA Ops": [
            ("%all-reduce-start.5 = x", 0, 1, "all-reduce-start"),
            ("%negate.1 = x", 1, 9, "loop fusion"),
            ("%all-reduce-done.9 = x", 10, 30, "all-reduce-done"),
        ],
    }
    found = traced(_program(PAIR), tpu("TPU:0", lines))
    assert found == TracedExchanges((TracedExchange(1, 31 * US, 31 * US),), 40 * US)
    assert found.rows[0].exposed_each() == 31 * US


def test_what_an_asynchronous_start_calls_is_found_by_the_starts_name(traced):
    called = f"""wrapped {{
  q = f32[256]{{0}} parameter(0)
  ROOT reduce-scatter.3 = f32[64]{{0}} reduce-scatter(q), {OVER}, dimensions={{0}}
}}
"""
    body = """  start.1 = ((f32[256]{0}), f32[64]{0}) async-start(p), calls=wrapped
  ROOT done.1 = f32[64]{0} async-done(start.1)"""
    plane = gpu(0, {7: [("ncclDevKernel_ReduceScatter", 0, 8, "start.1")]})
    assert traced(_program(body, called), plane).rows == (TracedExchange(1, 8 * US, 8 * US),)


def test_exchanges_of_one_launch_have_its_time_once(traced):
    called = f"""fused {{
  q = f32[256]{{0}} parameter(0)
  all-reduce.1 = f32[256]{{0}} all-reduce(q), {OVER}
  ROOT all-reduce.2 = f32[256]{{0}} all-reduce(all-reduce.1), {OVER}
}}
"""
    body = "  ROOT fusion.1 = f32[256]{0} fusion(p), kind=kCustom, calls=fused"
    plane = gpu(0, {7: [("ncclDevKernel_AllReduce", 0, 8, "fusion.1")]})
    assert traced(_program(body, called), plane).rows == (
        TracedExchange(1, 8 * US, 8 * US),
        TracedExchange(1, 0, 0),
    )


def test_an_exchange_that_did_not_run_in_the_window_is_not_known(traced):
    body = f"""  all-reduce.1 = f32[256]{{0}} all-reduce(p), {OVER}
  ROOT all-reduce.2 = f32[256]{{0}} all-reduce(all-reduce.1), {OVER}"""
    plane = gpu(0, {7: [("ncclDevKernel_AllReduce", 0, 8, "all-reduce.2")]})
    assert traced(_program(body), plane).rows == (None, TracedExchange(1, 8 * US, 8 * US))


@pytest.mark.parametrize(
    "ran",
    [
        PLAIN.replace("f32[256]", "f32[512]"),
        f"  ROOT all-reduce.1 = f32[1024]{{0}} all-gather(p), {OVER.partition(', to_apply')[0]}, "
        "dimensions={0}",
    ],
    ids=["other bytes", "another kind"],
)
def test_another_program_under_the_same_names_is_not_this_one(traced, ran):
    program = _program(PLAIN)
    plane = gpu(0, {7: [("kernel", 0, 8, "all-reduce.1")]})
    assert traced(program, plane, embedded(program)).rows == (TracedExchange(1, 8 * US, 8 * US),)
    text = _program(ran)
    if "512" in ran:
        text = text.replace("p = f32[256]", "p = f32[512]")
    found = traced(program, plane, embedded(text))
    assert found.rows == (None,)
    assert found.note == "another jit_step ran than this one: exchanges differ"
