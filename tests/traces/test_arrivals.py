"""Who keeps the others waiting, in recordings whose waits are written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.traced_devices import ALL_REDUCE, US, embedded, gpu

from hloscope.traces.arrivals import Taking, arrivals_of, compare_hosts
from hloscope.traces.exchanging import Exchanging, Key
from hloscope.traces.kernel_names import Category
from hloscope.traces.summary import summarize
from hloscope.traces.windows import Window, WindowChoice

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"
STEPS = 5
PERIOD = 100
TRANSFER = 10


def _plane(number, compute, last, *, steps=STEPS, begin=0, **more):
    """A device that computes so long each step and exchanges when the last one has come."""
    kernels = []
    for step in range(steps):
        at = begin + PERIOD * step
        kernels.append(("gemm", at, compute, "dot.1"))
        kernels.append((NCCL, at + compute, last - compute + TRANSFER, "all-reduce.1"))
    return gpu(number, {7: kernels}, **more)


def _found(trace):
    return {row.name: row for row in trace.hosts[0].arrivals.arrivals.devices}


def test_of_eight_devices_the_one_that_computes_longest_is_waited_for(trace_of):
    compute = [40, 41, 42, 60, 40, 40, 39, 38]
    trace = trace_of(
        *(_plane(number, length, 60) for number, length in enumerate(compute)),
        embedded(ALL_REDUCE.replace("GROUPS", "[1,8]<=[8]")),
    )
    arrivals = trace.hosts[0].arrivals.arrivals
    assert arrivals.skipped == {}
    assert (arrivals.partial, arrivals.assumed) == (False, 0)
    for row, length in zip(arrivals.devices, compute, strict=True):
        assert row.compared == STEPS
        assert row.waited == STEPS * (60 - length) * US
        slow = row.name == "GPU 3"
        assert row.last == (STEPS if slow else 0)
        assert row.caused == (STEPS * sum(60 - each for each in compute) * US if slow else 0)
    (exchange,) = arrivals.exchanges
    assert (exchange.straggler, exchange.share) == ("GPU 3", 1.0)
    assert exchange.waited == STEPS * sum(60 - each for each in compute) * US
    # What it costs them is exposed communication; the last one has the transfer alone.
    by_name = {device.name: device.parts for device in trace.devices}
    assert by_name["GPU 3"].exposed_communication == STEPS * TRANSFER * US
    assert by_name["GPU 0"].exposed_communication == STEPS * (20 + TRANSFER) * US


def test_each_group_waits_for_its_own(trace_of):
    # Devices 0 and 2 exchange, and 1 and 3.
    last = [50, 70, 50, 70]
    trace = trace_of(
        *(_plane(n, length, last[n]) for n, length in enumerate([50, 30, 20, 70])),
        embedded(ALL_REDUCE.replace("GROUPS", "{{0,2},{1,3}}")),
    )
    found = _found(trace)
    assert [found[f"GPU {n}"].waited for n in range(4)] == [
        0,
        STEPS * 40 * US,
        STEPS * 30 * US,
        0,
    ]
    assert [found[f"GPU {n}"].caused for n in range(4)] == [STEPS * 30 * US, 0, 0, STEPS * 40 * US]


def test_numbers_in_groups_are_devices_as_the_program_was_compiled_for_them(trace_of):
    # Partitions 0 to 3 run on devices 0, 3, 1 and 2: so 0 exchanges with 1, and 3 with 2.
    last = [50, 50, 70, 70]
    trace = trace_of(
        *(_plane(n, length, last[n]) for n, length in enumerate([50, 20, 70, 30])),
        embedded(ALL_REDUCE.replace("GROUPS", "{{0,2},{1,3}}"), 0, 3, 1, 2),
    )
    found = _found(trace)
    assert [found[f"GPU {n}"].waited for n in range(4)] == [
        0,
        STEPS * 30 * US,
        0,
        STEPS * 40 * US,
    ]


def test_groups_that_contradict_the_times_are_not_compared(trace_of):
    # The program's first group is done before the last of it begins: numbered otherwise.
    trace = trace_of(
        *(_plane(n, length, length) for n, length in enumerate([20, 60])),
        embedded(ALL_REDUCE.replace("GROUPS", "[1,2]<=[2]")),
    )
    arrivals = trace.hosts[0].arrivals.arrivals
    assert list(arrivals.skipped.values()) == [1]
    assert "done before others begin" in next(iter(arrivals.skipped))
    assert all(row.compared == 0 for row in arrivals.devices)


def test_devices_that_the_program_does_not_know_are_not_compared(trace_of):
    trace = trace_of(
        *(_plane(n, 30, 30) for n in range(2)),
        embedded(ALL_REDUCE.replace("GROUPS", "{{0,2},{1,3}}")),
    )
    assert trace.hosts[0].arrivals.arrivals.skipped == {
        "which of the devices exchange with each other is not known": 1
    }


def test_without_the_program_all_devices_are_taken_and_that_is_told(trace_of):
    trace = trace_of(_plane(0, 30, 50), _plane(1, 50, 50))
    assert _found(trace)["GPU 0"].waited == STEPS * 20 * US
    assert trace.hosts[0].arrivals.arrivals.assumed == 1


@pytest.mark.parametrize("missing", ["first", "last"])
def test_a_run_that_the_profiler_cut_off_one_device_shifts_nothing(trace_of, missing):
    cut = _plane(1, 50, 50, steps=STEPS - 1, begin=PERIOD if missing == "first" else 0)
    found = _found(trace_of(_plane(0, 30, 50), cut))
    assert (found["GPU 0"].compared, found["GPU 0"].waited) == (STEPS - 1, (STEPS - 1) * 20 * US)
    assert found["GPU 1"].last == STEPS - 1


def test_one_device_has_nobody_to_wait_for(trace_of):
    assert trace_of(_plane(0, 30, 50)).hosts[0].arrivals.arrivals is None


def _two_hosts(trace_of, groups):
    program = embedded(ALL_REDUCE.replace("GROUPS", groups))
    # Host b begins seconds later by its own clock, and its slowest device computes 10 us
    # longer than any of host a.
    a = [_plane(n, length, 60) for n, length in enumerate([30, 50])]
    b = [_plane(n, length, 60, timestamp_ns=5_000_000_000) for n, length in enumerate([60, 40])]
    return trace_of(a=[*a, program], b=[*b, program])


def test_hosts_are_compared_by_durations_and_not_by_their_clocks(trace_of):
    trace = _two_hosts(trace_of, "[1,4]<=[4]")
    between = compare_hosts({host.host: host.arrivals for host in trace.hosts})
    rows = {row.name: row for row in between.devices}
    # Shortest of a: 60 - 50 + 10 = 20 us; of b: 10 us. a waited 10 us for b in each.
    assert (rows["a"].waited, rows["a"].last) == (STEPS * 10 * US, 0)
    assert (rows["b"].caused, rows["b"].last) == (STEPS * 10 * US, STEPS)
    # Within a host it is a lower bound: whoever is last there is not the last of all.
    within = trace.hosts[0].arrivals.arrivals
    assert within.partial
    assert {row.name: row.waited for row in within.devices} == {
        "GPU 0": STEPS * 20 * US,
        "GPU 1": 0,
    }


def test_exchanges_within_a_host_say_nothing_of_other_hosts(trace_of):
    trace = _two_hosts(trace_of, "[1,2]<=[2]")
    assert compare_hosts({host.host: host.arrivals for host in trace.hosts}) is None


def test_hosts_of_several_groups_are_not_compared_for_want_of_who_is_in_which(trace_of):
    program = embedded(ALL_REDUCE.replace("GROUPS", "{{0,2},{1,3}}"))
    trace = trace_of(
        a=[_plane(0, 30, 60), program],
        b=[_plane(0, 60, 60), program],
    )
    assert compare_hosts({host.host: host.arrivals for host in trace.hosts}) is None


def test_only_runs_in_the_window_of_every_device_are_compared(recorded_as):
    recording = recorded_as(_plane(0, 30, 50), _plane(1, 50, 50))
    arrivals = summarize(recording, WindowChoice("steps", 1, 2)).arrivals.arrivals
    assert [row.compared for row in arrivals.devices] == [2, 2]
    assert arrivals.devices[0].waited == 2 * 20 * US


def test_what_is_kept_of_a_host_is_small(trace_of):
    trace = _two_hosts(trace_of, "[1,4]<=[4]")
    (kept,) = trace.hosts[0].arrivals.shortest.values()
    np.testing.assert_array_equal(kept.durations, np.full(STEPS, 20 * US))
    assert kept.counted.all()


@given(st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=20))
def test_what_is_waited_is_what_is_caused(arrivals):
    # Runs of three devices, 100 apart; each ends 5 after the last one of them has come.
    key = Key(1, "jit_step", "all-reduce.1", Category.ALL_REDUCE, None)
    base = np.arange(len(arrivals)) * 100 * US
    ends = base + (np.asarray(arrivals).max(axis=1) + 5) * US
    window = Window(0, int(ends.max()), "all")
    taking = [
        Taking(
            f"GPU {number}",
            number,
            Exchanging(
                (key,),
                np.zeros(len(base), np.int32),
                base + np.asarray(arrivals)[:, number] * US,
                ends,
                np.ones(len(base), np.int8),
            ),
            window,
        )
        for number in range(3)
    ]
    found = arrivals_of(taking).arrivals
    (exchange,) = found.exchanges
    waited = [sum(max(run) - run[number] for run in arrivals) * US for number in range(3)]
    assert [row.waited for row in found.devices] == waited
    assert sum(row.caused for row in found.devices) == sum(waited) == exchange.waited
    kept = sum(len(set(run)) > 1 for run in arrivals)
    assert sum(row.last for row in found.devices) == kept
