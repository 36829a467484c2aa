"""The host in recordings: of loops that ran here, and of AMD's GPUs."""

import pytest

from hloscope.traces.host_kinds import HostKind
from hloscope.traces.host_pace import Bound
from hloscope.traces.reading import read_trace

LOOPS = (
    *("ahead", "waiting", "loading", "sleeping", "eager", "placing", "calling_back"),
    "without_python",
)


def _only(trace):
    (host,) = trace.hosts
    (device,) = host.devices
    return host.budget, device.pace


@pytest.mark.parametrize("name", LOOPS)
def test_the_budget_of_a_real_loop_adds_up(recorded_loop, name):
    budget, pace = _only(recorded_loop(name))
    assert budget.thread.startswith("python")  # the interpreter's name, with its version or not
    assert budget.why == "its steps are annotated"
    assert sum(budget.times.values()) == budget.window.length
    assert all(time > 0 for time in budget.times.values())
    assert len(budget.steps) == 6
    for step in budget.steps:
        assert sum(step.times.values()) == step.wall
    assert budget.python == (name != "without_python")
    (device,) = recorded_loop(name).devices
    assert sum(pace.idle.values()) == device.parts.idle


def test_a_loop_that_asks_for_nothing_runs_ahead(recorded_loop):
    budget, pace = _only(recorded_loop("ahead"))
    assert not any(lead.asked for lead in pace.leads)
    assert pace.runs_ahead
    assert pace.waits == 0
    assert budget.fetches.number == 0


def test_a_loop_that_asks_for_its_loss_waits_for_each_step(recorded_loop):
    budget, pace = _only(recorded_loop("waiting"))
    assert {lead.asked for lead in pace.leads} == {True, None}
    assert budget.fetches.number >= len(budget.counted) - 1
    assert budget.fetches.caller.endswith(" waiting")


def test_an_iterator_is_input_and_a_sleeping_loop_only_between_steps(recorded_loop):
    budget, pace = _only(recorded_loop("loading"))
    assert pace.bound is Bound.INPUT
    assert budget.times[HostKind.INPUT] > budget.window.length / 2
    assert pace.gaps[0].frame.endswith(" __next__")
    for name in ("sleeping", "without_python"):
        budget, pace = _only(recorded_loop(name))
        assert pace.bound is Bound.BETWEEN
        assert HostKind.INPUT not in budget.times
        assert pace.gaps[0].kind is HostKind.BETWEEN
    budget, _ = _only(recorded_loop("sleeping"))
    assert budget.between == "$time sleep"


def test_each_eager_operation_is_a_call_of_its_own(recorded_loop):
    budget, _ = _only(recorded_loop("eager"))
    assert budget.program == "jit_step"
    assert {"jit_add", "jit_multiply", "jit_step"} <= set(budget.calls)
    assert budget.calls["jit_add"].number == budget.calls["jit_step"].number


def test_callbacks_on_a_cpu_are_found_in_the_thread_that_runs_them(recorded_loop):
    trace = recorded_loop("calling_back")
    assert "pure_callback.1" in trace.devices[0].tallies["op"]


def test_an_amd_loop_that_blocks_is_waited_for_each_step(fixtures_dir):
    trace = read_trace(fixtures_dir / "xplane/amd_mi355x_te_fused_attention.xplane.pb")
    budget, pace = _only(trace)
    assert (budget.thread, budget.why) == ("python3", "it calls jit_loss_fn")
    assert budget.questions.event == "$api.py:3105 block_until_ready"
    assert [lead.asked for lead in pace.leads] == [True] * 4 + [None]
    # By the launch that the first kernel is correlated with, a few microseconds before.
    assert all(0 < lead.time < 20_000_000 for lead in pace.leads)
    assert pace.bound is Bound.DEVICE
    assert {program: calls.number for program, calls in budget.calls.items()} == {"jit_loss_fn": 5}


def test_eager_programs_of_an_amd_recording_are_counted(fixtures_dir):
    trace = read_trace(fixtures_dir / "xplane/amd_mi300x_attention.xplane.pb")
    budget, _ = _only(trace)
    assert budget.program == "jit_matmul"
    assert budget.calls["jit_matmul"].number == 24
    assert budget.calls["jit_exp"].number == 3
    assert budget.times[HostKind.UNTRACED] > budget.window.length / 2


def test_several_devices_of_one_host_share_its_thread(fixtures_dir):
    trace = read_trace(fixtures_dir / "xplane/amd_mi300x_conv_old_format.xplane.pb")
    (host,) = trace.hosts
    assert host.budget.why == "it calls jit_forward_3d_conv"
    for device in host.devices:
        assert sum(device.pace.idle.values()) == device.parts.idle


def test_a_program_that_no_python_calls_is_driven_by_who_launches_it(fixtures_dir):
    trace = read_trace(fixtures_dir / "xplane/nvidia_2x_gtx1080ti_fusion.xplane.pb")
    (host,) = trace.hosts
    assert (host.budget.thread, host.budget.why) == ("julia", "it launches programs")
