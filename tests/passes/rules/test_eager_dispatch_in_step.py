"""HS103: single operations that Python dispatches in every step."""

import pytest
from oracles import gpu_loops

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits
from hloscope.traces.reading import read_trace


def test_operations_on_the_loss_are_found(found_in_trace, recorded_loop):
    (finding,) = found_in_trace("HS103", recorded_loop("eager"))
    (note,) = finding.notes
    assert set(note.split(", ")) == {"jit_add", "jit_multiply"}
    assert {one.name: one.value for one in finding.evidence}["calls a step"] == 2
    assert finding.site.file == "record_loops.py"


def test_a_loop_of_one_program_is_left_alone(found_in_trace, recorded_loop):
    assert found_in_trace("HS103", recorded_loop("ahead")) == ()


def _with_another(path, kernels, every=1):
    """The waiting loop with a call of 100 in its Python, which runs some kernels of 10."""
    loop = gpu_loops.GpuLoop()
    for number in range(4):
        begin = 1000 * number
        loop.step(number, begin, 900)
        loop.event("PjitFunction(step)", begin, 200)
        loop.kernel(begin + 150, 500, number + 1)
        if number % every == 0:
            loop.event("PjitFunction(multiply)", begin + 700, 100)
            for place in range(kernels):
                loop.kernel(
                    begin + 800 + 10 * place, 10, 100 + number, "jit_multiply", f"f.{place}"
                )
    return read_trace(loop.write(path))


def test_the_time_is_that_of_the_calls(found_in_trace, tmp_path):
    (finding,) = found_in_trace("HS103", _with_another(tmp_path, 1), Limits())
    time, share, calls, device = finding.evidence
    # From 0 to 3900, where the host ends its last step.
    assert time.value == pytest.approx(100e-6)
    assert share.value == pytest.approx(400 / 3900)
    assert calls.value == 1
    # The device's own window ends with its last step, before the last of these kernels.
    assert device.value == pytest.approx(3 * 10e-6 / 4)
    assert finding.severity is Severity.WARNING
    assert finding.notes == ("jit_multiply",)


def test_a_second_program_of_many_kernels_is_no_single_operation(found_in_trace, tmp_path):
    assert found_in_trace("HS103", _with_another(tmp_path, 3)) == ()


def test_an_operation_of_every_other_step_is_left_alone(found_in_trace, tmp_path):
    assert found_in_trace("HS103", _with_another(tmp_path, 1, every=2)) == ()
