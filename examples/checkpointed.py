"""Residual blocks with and without `jax.checkpoint`, to look at side by side.

    hloscope draw examples/checkpointed.py:step --view remat \
        --beside examples/checkpointed.py:kept -o remat.svg

In `kept` every block's tanh waits for the backward pass; in `step` it is
computed again.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from hloscope.capture.step import Step
from hloscope.ir.signature import Role

BATCH, WIDTH, HIDDEN, BLOCKS = 128, 256, 1024, 3

Params = list[dict[str, jax.Array]]


def block(params: dict[str, jax.Array], hidden: jax.Array) -> jax.Array:
    """Add what a tanh layer makes of its input to the input."""
    return hidden + jnp.tanh(hidden @ params["up"]) @ params["down"]


def train_step(params: Params, inputs: jax.Array, *, checkpoint: bool) -> tuple[Params, jax.Array]:
    """One step of gradient descent towards the inputs themselves."""
    run: Any = jax.checkpoint(block) if checkpoint else block

    def loss(params: Params) -> jax.Array:
        hidden = inputs
        for number, one in enumerate(params):
            with jax.named_scope(f"block_{number}"):
                hidden = run(one, hidden)
        return jnp.mean(jnp.square(hidden - inputs))

    value, gradients = jax.value_and_grad(loss)(params)
    with jax.named_scope("optimizer"):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def _step(*, checkpoint: bool) -> Step:
    array = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    one = {"up": array((WIDTH, HIDDEN)), "down": array((HIDDEN, WIDTH))}
    return Step(
        fn=functools.partial(train_step, checkpoint=checkpoint),
        args=([dict(one) for _ in range(BLOCKS)], array((BATCH, WIDTH))),
        donate=(0,),
        roles={0: Role.STATE, 1: Role.BATCH},
        name="blocks, checkpointed" if checkpoint else "blocks, kept",
    )


step = _step(checkpoint=True)
kept = _step(checkpoint=False)
