"""Who sets the pace, by loops whose every microsecond is known."""

from types import SimpleNamespace

import pytest
from oracles import gpu_loops
from oracles.gpu_loops import FRAME, US, WAIT

from hloscope.traces.host_kinds import HostKind
from hloscope.traces.host_pace import Bound
from hloscope.traces.reading import read_trace


@pytest.fixture
def looked_at(tmp_path):
    """The budget and the pace of a loop."""

    def look(write):
        trace = read_trace(write(tmp_path))
        (host,) = trace.hosts
        (device,) = host.devices
        return SimpleNamespace(budget=host.budget, pace=device.pace, device=device)

    return look


def test_idle_time_is_what_the_host_did_in_it(looked_at):
    found = looked_at(gpu_loops.waiting)
    # Three gaps of 500: 50 of waiting still, 200 of Python, 100 between steps, 50 of
    # dispatch, 100 of launching.
    assert found.pace.idle == {
        HostKind.DEVICE_WAIT: 150 * US,
        HostKind.PYTHON: 600 * US,
        HostKind.BETWEEN: 300 * US,
        HostKind.DISPATCH: 150 * US,
        HostKind.LAUNCH: 300 * US,
    }
    assert found.pace.bound is Bound.HOST
    assert "idle 43% of the time, 70% of it" in found.pace.reason


def test_the_budget_is_of_the_hosts_own_steps(looked_at):
    budget = looked_at(gpu_loops.waiting).budget
    assert (budget.window.begin, budget.window.end) == (0, 3900 * US)
    # Four calls of 200, 140 of each the launch; four waits, the rest of four steps, and three
    # times the way to the next.
    assert budget.times == {
        HostKind.DISPATCH: 4 * 60 * US,
        HostKind.LAUNCH: 4 * 140 * US,
        HostKind.DEVICE_WAIT: 4 * 500 * US,
        HostKind.PYTHON: 4 * 200 * US,
        HostKind.BETWEEN: 3 * 100 * US,
    }
    assert sum(budget.times.values()) == budget.window.length
    assert [step.wall for step in budget.steps] == [1000 * US] * 3 + [900 * US]
    assert [step.own for step in budget.steps] == [500 * US] * 3 + [400 * US]
    assert all(sum(step.times.values()) == step.wall for step in budget.steps)
    assert (budget.questions.number, budget.questions.event) == (4, WAIT)
    assert budget.questions.caller == FRAME
    assert {program: calls.number for program, calls in budget.calls.items()} == {"jit_step": 4}


def test_a_loop_that_waits_each_step_is_never_ahead(looked_at):
    pace = looked_at(gpu_loops.waiting).pace
    # The launch ends at 120, the kernel begins at 150.
    assert [lead.time for lead in pace.leads] == [30 * US] * 4
    assert [lead.steps for lead in pace.leads] == [0] * 4
    assert [lead.asked for lead in pace.leads] == [True, True, True, None]
    assert pace.waits == 3 * 500 * US
    assert not pace.runs_ahead


def test_a_loop_that_does_not_wait_runs_ahead(looked_at):
    pace = looked_at(gpu_loops.ahead).pace
    # Kernel n begins at 150 + 500 n, its launch ends at 60 + 100 n; all calls have returned
    # at 380, before the second kernel begins at 650.
    assert [lead.time for lead in pace.leads] == [(90 + 400 * n) * US for n in range(4)]
    assert [lead.steps for lead in pace.leads] == [0, 2, 1, 0]
    assert [lead.asked for lead in pace.leads] == [False, False, False, None]
    assert (pace.waits, pace.idle, pace.gaps) == (0, {}, ())
    assert (pace.bound, pace.reason) == (Bound.DEVICE, "the device worked 100% of the time")


def test_calls_outside_of_the_annotations_launch_none_of_their_steps(looked_at):
    def write(path):
        loop = gpu_loops.GpuLoop()
        for number in range(6):
            begin = 1000 * number
            if number >= 3:  # three that warm up come first
                loop.step(number, begin, 400)
            loop.event("PjitFunction(step)", begin, 100)
            loop.launch(begin + 50, 20, number + 1)
            loop.kernel(begin + 200, 300, number + 1)
        return loop.write(path)

    pace = looked_at(write).pace
    # Each launch ends at 70, and its kernel begins at 200.
    assert [lead.time for lead in pace.leads] == [130 * US] * 3
    assert [lead.steps for lead in pace.leads] == [0] * 3


def test_calls_before_their_annotations_are_the_steps_in_their_order(looked_at):
    def write(path):
        loop = gpu_loops.GpuLoop()
        for number in range(2):
            begin = 1000 * number
            loop.event("PjitFunction(step)", begin, 100)
            loop.step(number, begin + 110, 300)
            loop.launch(begin + 150, 20, number + 1)
            loop.kernel(begin + 200, 300, number + 1)
        return loop.write(path)

    pace = looked_at(write).pace
    # Each launch ends at 170, and its kernel begins at 200.
    assert [lead.time for lead in pace.leads] == [30 * US] * 2


def test_the_longest_gaps_say_what_the_host_did_and_where(looked_at):
    gaps = looked_at(gpu_loops.waiting).pace.gaps
    assert [(gap.begin, gap.length) for gap in gaps] == [
        ((650 + 1000 * n) * US, 500 * US) for n in range(3)
    ]
    first = gaps[0]
    assert (first.step, first.inside) == (1, False)
    assert (first.kind, first.time) == (HostKind.PYTHON, 200 * US)
    # No call covers half of it; the loop's own frame does.
    assert (first.event, first.covered, first.frame) == (FRAME, 500 * US, FRAME)


def test_a_wait_without_python_is_from_its_first_mark_to_its_last(looked_at):
    def write(path):
        loop = gpu_loops.GpuLoop()
        for number in range(2):
            begin = 1000 * number
            loop.step(number, begin, 900)
            loop.event("PjitFunction(step)", begin, 100)
            loop.kernel(begin + 100, 500, number + 1)
            marks = [("_p", begin + 200), ("_c", begin + 700)]
            for stat, at in marks:
                event = loop.host.event(
                    "CommonPjRtBuffer::Await", at * US, US, **{stat: number + 77}
                )
                loop.thread.append(event)
        return loop.write(path)

    found = looked_at(write)
    # From 200 to 701 in each step; nothing is recorded from 100 to 200 and from 701 to 900.
    assert found.budget.times[HostKind.DEVICE_WAIT] == 2 * 501 * US
    assert found.budget.times[HostKind.UNTRACED] == 2 * (100 + 199) * US
    assert not found.budget.python
    assert [lead.asked for lead in found.pace.leads] == [True, None]


def test_nothing_is_claimed_of_a_host_that_was_not_recorded(looked_at):
    def write(path):
        loop = gpu_loops.GpuLoop()
        loop.kernel(0, 100, 1)
        loop.kernel(900, 100, 2)
        return loop.write(path)

    found = looked_at(write)
    assert found.budget is None
    assert (found.pace.bound, found.pace.idle) == (Bound.UNCLEAR, {})
    assert "no thread of the host is known to drive it" in found.pace.reason
    assert found.pace.gaps[0].kind is None


def test_time_that_is_not_recorded_is_unclear_and_never_input(looked_at):
    def write(path):
        loop = gpu_loops.GpuLoop()
        for number in range(3):
            loop.step(number, 1000 * number, 990)
            loop.event("PjitFunction(step)", 1000 * number + 700, 100)
            loop.kernel(1000 * number + 800, 100, number + 1)
        return loop.write(path)

    pace = looked_at(write).pace
    assert pace.bound is Bound.UNCLEAR
    assert "nothing is recorded of the host's thread" in pace.reason
    assert HostKind.INPUT not in pace.idle
