"""HS603: arguments that are placed on the device in every step."""

import pytest
from oracles import gpu_loops

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits
from hloscope.traces.reading import read_trace


def test_numpy_arrays_as_arguments_are_found(found_in_trace, recorded_loop):
    (finding,) = found_in_trace("HS603", recorded_loop("placing"))
    assert {one.name: one.value for one in finding.evidence}["placements a step"] == 1
    assert finding.notes == ("mostly DevicePut, in placing",)
    assert finding.site.file == "record_loops.py"


def test_arrays_on_the_device_are_left_alone(found_in_trace, recorded_loop):
    assert found_in_trace("HS603", recorded_loop("ahead")) == ()


def _placing(path, waits):
    """A call of 300 of which 200 place arguments, before a kernel of 500, waited for or not."""
    loop = gpu_loops.GpuLoop()
    for number in range(4):
        begin = (1000 if waits else 400) * number
        loop.step(number, begin, 390)
        loop.event("PjitFunction(step)", begin, 300)
        loop.event("shard_args", begin + 50, 200)
        loop.kernel(300 + (1000 if waits else 500) * number, 500, number + 1)
    return read_trace(loop.write(path))


def test_the_time_is_that_of_the_host_and_of_the_idle_device(found_in_trace, tmp_path):
    (finding,) = found_in_trace("HS603", _placing(tmp_path, waits=True), Limits())
    time, share, idle, number = finding.evidence
    # In a window from 0 to 3800; the device is idle in three of the four placements.
    assert time.value == pytest.approx(200e-6)
    assert share.value == pytest.approx(800 / 3800)
    assert idle.value == pytest.approx(3 * 200 / 4 * 1e-6)
    assert number.value == 1
    assert finding.severity is Severity.WARNING
    assert finding.notes == ("mostly shard_args",)


def test_behind_a_busy_device_it_is_a_note(found_in_trace, tmp_path):
    (finding,) = found_in_trace("HS603", _placing(tmp_path, waits=False), Limits())
    assert finding.severity is Severity.NOTE
    assert finding.evidence[2].value == 0
