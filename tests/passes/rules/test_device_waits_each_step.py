"""HS102: loops that ask for a step's results before they launch the next."""

import pytest
from oracles import gpu_loops

from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.rules import Limits
from hloscope.traces.reading import read_trace


def test_a_loop_that_fetches_its_loss_is_found(found_in_trace, recorded_loop):
    (finding,) = found_in_trace("HS102", recorded_loop("waiting"))
    assert finding.site.file == "record_loops.py"
    assert finding.cost.basis is Basis.BOUNDED
    (note,) = finding.notes
    assert note.endswith(", in waiting")


def test_a_loop_that_runs_ahead_is_left_alone(found_in_trace, recorded_loop):
    assert found_in_trace("HS102", recorded_loop("ahead")) == ()


def test_the_time_is_what_the_device_idles_behind_each_step(found_in_trace, tmp_path):
    trace = read_trace(gpu_loops.waiting(tmp_path))
    (finding,) = found_in_trace("HS102", trace, Limits())
    evidence = {one.name: one.value for one in finding.evidence}
    # 500 microseconds behind each of the first three steps, in a window of 3500.
    assert evidence == {
        "idle a step": pytest.approx(500e-6),
        "share of the window": pytest.approx(1500 / 3500),
        "steps waited for": 3,
        "of steps": 3,
    }
    assert finding.severity is Severity.ERROR
    assert (finding.site.file, finding.site.line) == ("train.py", 7)
    assert finding.notes == ("mostly block_until_ready (api.py), in loop",)


def test_less_than_the_limit_is_no_finding(found_in_trace, tmp_path):
    trace = read_trace(gpu_loops.waiting(tmp_path))
    assert found_in_trace("HS102", trace, Limits(traced_share=0.5)) == ()


def test_without_a_trace_it_is_not_checked(findings_of):
    with pytest.raises(Unavailable, match="no trace given"):
        findings_of("HS102", "HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }")


def test_a_recording_without_its_host_is_not_checked(found_in_trace, tmp_path):
    loop = gpu_loops.GpuLoop()
    loop.kernel(0, 100, 1)
    loop.kernel(900, 100, 2)
    trace = read_trace(loop.write(tmp_path))
    for code in ("HS102", "HS103", "HS104", "HS601", "HS602", "HS603"):
        with pytest.raises(Unavailable, match="no thread of the host that drives"):
            found_in_trace(code, trace)
