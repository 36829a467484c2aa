import pytest
from oracles.xspaces import PlaneWriter, space

from hloscope.pipeline.findings import Trust
from hloscope.traces.reading import read_recording
from hloscope.traces.summary import Trace, summarize

TEXT = """
HloModule jit_step
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] add(x, x)
  ROOT z = f32[8] multiply(y, x)
}
"""


@pytest.fixture
def ran(tmp_path):
    """A trace of kernels given as the module, the operation, and how long it took."""

    def write(*kernels):
        plane = PlaneWriter("/device:GPU:0")
        events = [
            plane.event(op, 100 * n, length, hlo_module=module, hlo_op=op, correlation_id=n + 1)
            for n, (module, op, length) in enumerate(kernels)
        ]
        plane.line("Stream #7(Compute)", events)
        path = tmp_path / "host.xplane.pb"
        path.write_bytes(space(plane))
        return Trace("run", (summarize(read_recording(path)),))

    return write


def test_the_trust_line_says_how_much_of_the_traced_time_is_the_programs(session_of, ran):
    trace = ran(("jit_step", "y", 60), ("jit_step", "z", 30), ("jit_other", "w", 10))
    trust = session_of(TEXT, trace).get(Trust)
    assert trust.traced == pytest.approx(0.9)
    assert trust.notes == ()


def test_without_a_trace_it_says_nothing_of_one(session_of):
    assert session_of(TEXT).get(Trust).traced is None


def test_a_trace_of_another_program_is_told(session_of, ran):
    trace = ran(("jit_step", "y", 10), ("jit_other", "w", 90))
    trust = session_of(TEXT, trace).get(Trust)
    assert trust.traced == pytest.approx(0.1)
    assert trust.notes == (
        "the trace is of another program than jit_step: it spent most of its time in jit_other",
    )


def test_a_trace_of_the_same_program_compiled_otherwise_is_told(session_of, ran):
    trace = ran(("jit_step", "fusion.1", 70), ("jit_step", "y", 30))
    trust = session_of(TEXT, trace).get(Trust)
    assert trust.traced == pytest.approx(0.3)
    (note,) = trust.notes
    assert note.startswith("the trace ran a jit_step of other instructions")
