"""HS601: devices that wait for the next batch."""

import pytest
from oracles import gpu_loops

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits
from hloscope.traces.reading import read_trace


def test_an_iterator_that_takes_longer_than_the_step_is_found(found_in_trace, recorded_loop):
    (finding,) = found_in_trace("HS601", recorded_loop("loading"), Limits())
    assert finding.message == "the device waits for the input pipeline"
    assert finding.severity is Severity.ERROR
    assert finding.site.file == "record_loops.py"
    assert finding.notes == ("longest in $time sleep, in __next__",)


def test_time_between_steps_is_not_called_input(found_in_trace, recorded_loop):
    for name in ("sleeping", "without_python"):
        (finding,) = found_in_trace("HS601", recorded_loop(name), Limits())
        assert finding.message.endswith("between steps, input or other")
    # Without Python's frames nothing says where.
    assert (finding.site.file, finding.notes) == (None, ())


def test_a_loop_that_runs_ahead_is_left_alone(found_in_trace, recorded_loop):
    assert found_in_trace("HS601", recorded_loop("ahead")) == ()


def test_the_time_is_that_in_which_the_device_was_idle(found_in_trace, tmp_path):
    loop = gpu_loops.GpuLoop()
    for number in range(4):
        begin = 1000 * number
        loop.step(number, begin, 300)
        loop.event("PjitFunction(step)", begin, 200)
        loop.kernel(begin + 150, 500, number + 1)
        loop.event("$dataloader.py:708 __next__", begin + 300, 690)
    (finding,) = found_in_trace("HS601", read_trace(loop.write(tmp_path)), Limits())
    idle, share = finding.evidence
    # Of three gaps from 650 to 1150: until 990 in the iterator, until 1000 between steps.
    assert idle.value == pytest.approx(3 * 350 / 4 * 1e-6)
    assert share.value == pytest.approx(3 * 350 / 3500)
    assert (finding.site.file, finding.site.line) == ("dataloader.py", 708)
