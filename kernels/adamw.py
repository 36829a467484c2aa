"""Implementations of the AdamW update, which differ in how they keep its moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from hloscope.kernels.case import Case
from hloscope.kernels.oracles.adamw import DECAY, EPSILON, FIRST, RATE, SECOND
from hloscope.models.blocks.stochastic_rounding import hashed_bits, round_at_random

__all__ = ["implement"]

Arrays = Mapping[str, jax.Array]


def implement(
    case: Case,
    *,
    interpret: bool,  # noqa: ARG001  (there is no Pallas kernel among them)
) -> Callable[[Arrays], dict[str, jax.Array]]:
    """The case's function from operands to results; all arithmetic is in float32."""
    name = case.implementation.name

    def update(arrays: Arrays) -> dict[str, jax.Array]:
        gradient = arrays["gradient"].astype(jnp.float32)
        step = arrays["step"].astype(jnp.float32)
        mean = FIRST * arrays["mean"].astype(jnp.float32) + (1 - FIRST) * gradient
        variance = SECOND * arrays["variance"].astype(jnp.float32)
        variance += (1 - SECOND) * jnp.square(gradient)
        direction = mean / (1 - FIRST**step)
        direction /= jnp.sqrt(variance / (1 - SECOND**step)) + EPSILON
        parameter = arrays["parameter"] * (1 - RATE * DECAY) - RATE * direction
        if name == "nearest":
            mean, variance = mean.astype(jnp.bfloat16), variance.astype(jnp.bfloat16)
        elif name != "float32":
            low, high = _bits(name, arrays)
            mean, variance = round_at_random(mean, low), round_at_random(variance, high)
        return {"parameter": parameter, "mean": mean, "variance": variance}

    return update


def _bits(name: str, arrays: Arrays) -> tuple[jax.Array, jax.Array]:
    """16 random bits for each value of either moment, from the seed and the step."""
    shape, seed, step = arrays["parameter"].shape, arrays["seed"], arrays["step"]
    if name == "threefry":
        key = jax.random.fold_in(jax.random.wrap_key_data(seed, impl="threefry2x32"), step)
        bits = jax.random.bits(key, shape, jnp.uint32)
    else:
        bits = hashed_bits(shape, seed, step)
    return bits & 0xFFFF, bits >> 16
