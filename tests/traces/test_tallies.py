"""Time added up by what it was spent on."""

import numpy as np
import pytest
from oracles.recorded import ONE_MS, gpu, recorded

from hloscope.traces.summary import summarize
from hloscope.traces.tallies import BY, UNKNOWN, Tally
from hloscope.traces.windows import WindowChoice

KERNELS = [
    ("fusion.1", 0.0, 1.0, 0),
    ("dot.2", 1.0, 2.0, 0),
    ("fusion.1", 4.0, 1.0, 1),
    ("dot.2", 5.0, 3.0, 1),
]


@pytest.fixture
def device(tmp_path):
    (found,) = summarize(recorded(tmp_path, gpu(KERNELS)), WindowChoice("all")).devices
    return found


def test_durations_of_one_operation_are_added_up(device):
    assert device.tallies["op"] == {
        "fusion.1": Tally(2 * ONE_MS, 2),
        "dot.2": Tally(5 * ONE_MS, 2),
    }


@pytest.mark.parametrize("by", BY)
def test_every_list_adds_up_to_the_same_time(device, by):
    assert sum(tally.time for tally in device.tallies[by].values()) == 7 * ONE_MS
    assert sum(tally.number for tally in device.tallies[by].values()) == 4


@pytest.mark.parametrize("by", ["scope", "source"])
def test_what_is_not_embedded_has_no_scope_and_no_line(device, by):
    assert device.tallies[by] == {UNKNOWN: Tally(7 * ONE_MS, 4)}


def test_an_event_across_the_windows_edge_counts_with_its_part(tmp_path):
    # Two streams: what runs on the second reaches into the step that is chosen.
    plane = gpu(KERNELS)
    crossing = plane.event(
        "copy.3", 3 * ONE_MS, 2 * ONE_MS, hlo_op="copy.3", hlo_module="jit_step", run_id=2
    )
    plane.line("Stream #8(Compute)", [crossing])
    (found,) = summarize(recorded(tmp_path, plane), WindowChoice.parse("0")).devices
    assert found.windows.chosen.end == 3 * ONE_MS
    assert "copy.3" not in found.tallies["op"]
    (found,) = summarize(recorded(tmp_path, plane), WindowChoice.parse("1")).devices
    assert found.tallies["op"]["copy.3"] == Tally(2 * ONE_MS, 1)


def test_sums_are_exact_beyond_what_a_float_holds(tmp_path):
    # Three hours in picoseconds are more than 2^53.
    long = 3 * 3600 * 1000
    kernels = [("dot.2", 0.0, long, 0), ("dot.2", float(long), long + 1e-9, 1)]
    (found,) = summarize(recorded(tmp_path, gpu(kernels)), WindowChoice("all")).devices
    wanted = sum(round(length * ONE_MS) for _, _, length, _ in kernels)
    assert wanted > 2**54
    assert found.tallies["op"]["dot.2"].time == wanted
    assert np.int64(wanted) == wanted
