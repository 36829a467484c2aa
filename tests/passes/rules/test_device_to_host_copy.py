"""HS104: arrays that come to the host in every step."""

import pytest
from oracles import gpu_loops

from hloscope.pipeline.rules import Limits
from hloscope.traces.reading import read_trace


def test_a_loss_that_is_fetched_is_found(found_in_trace, recorded_loop):
    (finding,) = found_in_trace("HS104", recorded_loop("waiting"))
    assert finding.site.file == "record_loops.py"
    assert "fetches a step" in {one.name for one in finding.evidence}


def test_a_loop_that_fetches_nothing_is_left_alone(found_in_trace, recorded_loop):
    assert found_in_trace("HS104", recorded_loop("ahead")) == ()


def _fetching(path, every=1):
    """A fetch from 200 to 800 of each step; the kernel runs until 650, a copy from 700 to 760."""
    loop = gpu_loops.GpuLoop()
    for number in range(4):
        begin = 1000 * number
        loop.step(number, begin, 900)
        loop.event("PjitFunction(step)", begin, 200)
        loop.kernel(begin + 150, 500, number + 1)
        if number % every == 0:
            loop.event("np.asarray(jax.Array)", begin + 200, 600)
            loop.copy_to_host(begin + 700, 60, 100 + number)
    return read_trace(loop.write(path))


def test_the_time_is_that_of_fetching_while_no_device_works(found_in_trace, tmp_path):
    (finding,) = found_in_trace("HS104", _fetching(tmp_path), Limits())
    time, share, fetches, copies = finding.evidence
    # From 650 to 700 and from 760 to 800 in each of four steps, which end at 3900.
    assert time.value == pytest.approx(90e-6)
    assert share.value == pytest.approx(4 * 90 / 3900)
    # The device's own window ends with its last step, before the last copy.
    assert (fetches.value, copies.value) == (1, 3 / 4)
    assert finding.notes == ("mostly np.asarray(jax.Array)",)


def test_a_fetch_of_every_other_step_is_left_alone(found_in_trace, tmp_path):
    assert found_in_trace("HS104", _fetching(tmp_path, every=2)) == ()
