"""HS802: what XLA computes for seconds while it compiles."""

from __future__ import annotations

import pytest

from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.inputs import CompilerSetup

# Four million additions, which XLA's evaluator takes several seconds for.
FOLDED = """
table = np.arange(1 << 15, dtype=np.float32).reshape(256, 128) * 1.5

def step(x):
    return x + jax.lax.reduce_window(jnp.asarray(table), 0.0, jax.lax.add, (128, 1), (1, 1), "SAME")

step = Step(step, (shape(256, 128),))
"""
PASSED = """
def step(x, table):
    return x + jax.lax.reduce_window(table, 0.0, jax.lax.add, (128, 1), (1, 1), "SAME")

step = Step(step, (shape(256, 128), shape(256, 128)))
"""


def test_a_slow_folding_is_found_in_what_the_compiler_said(found_in):
    (finding,) = found_in("HS802", FOLDED)
    assert "reduce_window_sum (f32[256,128])" in finding.message
    assert finding.site.file == "train.py"
    assert finding.severity is Severity.WARNING
    assert finding.cost.basis is Basis.EXACT
    assert 1 <= finding.cost.value <= finding.evidence[1].value


def test_the_same_work_on_an_argument_is_left_alone(found_in):
    assert found_in("HS802", PASSED) == ()


def test_a_compile_that_nobody_listened_to_is_not_checked(findings_of):
    text = "HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }"
    with pytest.raises(Unavailable, match="what the compiler said"):
        findings_of("HS802", text, CompilerSetup(None, None))
