"""HS905: checkpoints that the compiler merged with what they repeat."""

from __future__ import annotations

import pytest

STEP = """
def block(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w)

block = jax.checkpoint(block{how})

def loss(ws, x):
    for w in ws:
        x = block(x, w)
    return (x ** 2).sum()

step = Step(jax.grad(loss), ([shape(256, 256) for _ in range(4)], shape(256, 256)))
"""
UNDONE = STEP.format(how=", prevent_cse=False")
KEPT = STEP.format(how="")
SCANNED = """
def block(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w), None

def loss(ws, x):
    x, _ = jax.lax.scan(jax.checkpoint(block, prevent_cse=False), x, ws)
    return (x ** 2).sum()

step = Step(jax.grad(loss), (shape(4, 256, 256), shape(256, 256)))
"""
PLAIN = STEP.replace("jax.checkpoint(block{how})", "block")


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_unrolled_layers_without_a_barrier_are_found_on_their_line(found_in, target):
    (finding,) = found_in("HS905", UNDONE, target)
    assert finding.site.file == "train.py"
    assert finding.evidence[1].value > 0.5
    assert "prevent_cse" in finding.fix


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_the_same_layers_behind_a_barrier_are_left_alone(found_in, target):
    assert found_in("HS905", KEPT, target) == ()


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_layers_that_a_scan_keeps_apart_are_left_alone(found_in, target):
    assert found_in("HS905", SCANNED, target) == ()


def test_a_step_without_checkpoints_is_left_alone(found_in):
    assert found_in("HS905", PLAIN) == ()


def test_a_bare_module_cannot_tell(findings_of, fixtures_dir):
    text = (fixtures_dir / "compiled" / "today" / "cpu_remat_unroll_nocse.hlo").read_text()
    assert findings_of("HS905", text) == ()
