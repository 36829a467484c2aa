"""HS101: calls back to the host, by the compiled program and by what was recorded."""

from __future__ import annotations

import pytest

from hloscope.ir import Module
from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.rules import RULES, call
from hloscope.pipeline.session import Session
from hloscope.traces.summary import Trace

PRINTED = """
def step(w, x):
    def body(carry, _):
        jax.debug.print("first {}", carry[0, 0])
        return jnp.tanh(carry @ w), None

    return jax.lax.scan(body, x, None, length=3)[0]

step = Step(step, (shape(16, 16), shape(16, 16)))
"""
RETURNED = """
def step(w, x):
    def body(carry, _):
        return jnp.tanh(carry @ w), carry[0, 0]

    return jax.lax.scan(body, x, None, length=3)

step = Step(step, (shape(16, 16), shape(16, 16)))
"""
# The same program as oracles/record_loops.py runs.
CALLED = """
def calling(weights, batch):
    seen = jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((), "float32"), jnp.sum(batch))
    return weights + seen, seen

step = Step(calling, (shape(384, 384), shape(384, 384)))
"""


@pytest.mark.parametrize("target", ["cpu", "v5e:2x2"])
def test_a_print_in_a_loop_is_found_at_its_line_with_its_runs(found_in, tmp_path, target):
    (finding,) = found_in("HS101", PRINTED, target)
    assert finding.message == "debug_print calls the host in the step"
    assert finding.site.file == "train.py"
    lines = (tmp_path / "train.py").read_text().splitlines()
    assert "jax.debug.print" in lines[finding.site.line - 1]
    assert finding.severity is Severity.WARNING
    (runs,) = finding.evidence
    assert runs.name == "runs a step"
    assert (runs.value, runs.basis) == (3, Basis.EXACT)
    assert "print it outside" in finding.fix


def test_what_a_step_returns_is_no_callback(found_in):
    assert found_in("HS101", RETURNED) == ()


def test_a_recording_of_the_program_adds_the_time_of_the_callback(captured, recorded_loop):
    session = captured(CALLED)
    (without,) = _found(session)
    assert [one.name for one in without.evidence] == ["runs a step"]
    trace = recorded_loop("calling_back")
    (finding,) = _found(Session(session.subject, given={Trace: trace}))
    assert finding.message == "pure_callback calls the host in the step"
    runs, time, share = finding.evidence
    assert (runs.name, time.name, share.name) == (
        "runs a step",
        "time a step",
        "share of the window",
    )
    (device,) = trace.devices
    recorded = device.tallies["op"]["pure_callback.1"].time * 1e-12
    assert time.value * len(device.steps.rows) == pytest.approx(recorded)
    assert 0 < share.value < 1
    assert session.get(Module).name == "jit_calling"


def test_a_recording_of_another_program_adds_nothing(captured, recorded_loop):
    session = captured(CALLED)
    (finding,) = _found(Session(session.subject, given={Trace: recorded_loop("ahead")}))
    assert [one.name for one in finding.evidence] == ["runs a step"]


def test_infeeds_and_sends_to_the_host_are_calls_sends_between_devices_are_none(findings_of):
    text = """HloModule m

ENTRY e {
  p = f32[8] parameter(0)
  t = token[] after-all()
  i = ((f32[8]), token[]) infeed(t), infeed_config=""
  s = (f32[8], u32[], token[]) send(p, t), channel_id=1, is_host_transfer=true
  sd = token[] send-done(s), channel_id=1, is_host_transfer=true
  d = (f32[8], u32[], token[]) send(p, t), channel_id=2
  dd = token[] send-done(d), channel_id=2
  ROOT r = f32[8] negate(p)
}
"""
    found = findings_of("HS101", text)
    assert sorted(finding.site.instruction for finding in found)[:2] == ["i", "s"]
    assert not {"d", "dd"} & {finding.site.instruction for finding in found}


def _found(session):
    rule = RULES["HS101"]
    return call(rule, session.arguments(rule.needs))
