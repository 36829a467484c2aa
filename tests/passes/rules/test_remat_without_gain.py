"""HS906: checkpoints that run products again and spare nothing."""

from __future__ import annotations

import pytest

SMALL = """
def step(w, v, table):
    @jax.checkpoint
    def score(v, w):
        return jnp.tanh(v @ w @ w @ w)

    return score(v, w).sum() + (table ** 2).sum()

step = Step(jax.grad(step, argnums=(0, 2)), (shape(512, 512), shape(2, 512), shape(4096, 4096)))
"""
LAYERS = """
@jax.checkpoint
def block(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w)

def loss(ws, x):
    for w in ws:
        x = block(x, w)
    return (x ** 2).sum()

step = Step(jax.grad(loss), ([shape(256, 256) for _ in range(4)], shape(1024, 256)))
"""


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_a_checkpoint_around_little_is_found(found_in, target):
    (finding,) = found_in("HS906", SMALL, target)
    assert finding.site.file == "train.py"
    assert finding.evidence[2].value < 1 << 20


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_a_checkpoint_around_layers_is_left_alone(found_in, target):
    assert found_in("HS906", LAYERS, target) == ()
