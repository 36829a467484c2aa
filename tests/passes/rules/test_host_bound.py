"""HS602: devices that wait for Python and for launches."""

import pytest
from oracles import gpu_loops

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits
from hloscope.traces.reading import read_trace


def test_idle_time_in_dispatch_and_python_is_found(found_in_trace, tmp_path):
    trace = read_trace(gpu_loops.waiting(tmp_path))
    (finding,) = found_in_trace("HS602", trace, Limits())
    idle, share, own = finding.evidence
    # Three gaps of 500, of which 200 in Python, 50 in dispatch, 100 in the launch.
    assert idle.value == pytest.approx(3 * 350 / 4 * 1e-6)
    assert share.value == pytest.approx(3 * 350 / 3500)
    assert own.value == pytest.approx(500e-6)
    assert finding.message == "the device waits for the host: mostly other Python"
    assert finding.severity is Severity.ERROR
    assert finding.notes == (
        "idle while the host was in: other Python 57%, launch 29%, dispatch 14%",
    )


def test_a_loop_that_runs_ahead_is_left_alone(found_in_trace, recorded_loop):
    assert found_in_trace("HS602", recorded_loop("ahead")) == ()


def test_a_recorded_loop_of_many_launches_is_found(found_in_trace, fixtures_dir):
    trace = read_trace(fixtures_dir / "xplane/amd_mi300x_conv_old_format.xplane.pb")
    (finding,) = found_in_trace("HS602", trace, Limits())
    assert finding.message == "the device waits for the host: mostly launch"
    assert "jax.lax.scan" in finding.fix


def test_a_device_that_sets_the_pace_gets_a_note(found_in_trace, fixtures_dir):
    trace = read_trace(fixtures_dir / "xplane/amd_mi355x_te_fused_attention.xplane.pb")
    (finding,) = found_in_trace("HS602", trace, Limits(warning_share=0.01))
    assert finding.severity is Severity.NOTE


def test_what_was_not_recorded_is_not_the_hosts(found_in_trace, tmp_path):
    loop = gpu_loops.GpuLoop()
    for number in range(4):
        begin = 1000 * number
        loop.step(number, begin, 999)
        loop.event("PjitFunction(step)", begin + 140, 20)
        loop.kernel(begin + 150, 500, number + 1)
    (finding,) = found_in_trace("HS602", read_trace(loop.write(tmp_path)))
    # Nothing is known of the time but in three calls, of which 10 lie before the kernel.
    assert finding.evidence[0].value == pytest.approx(3 * 10 / 4 * 1e-6)
    assert found_in_trace("HS602", read_trace(loop.write(tmp_path)), Limits()) == ()
