"""Implementations of the AdamW update, which differ in how they keep its moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from hloscope.kernels.case import Case
from hloscope.kernels.oracles.adamw import DECAY, EPSILON, FIRST, RATE, SECOND

__all__ = ["hashed_bits", "implement", "round_at_random"]

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


def hashed_bits(shape: tuple[int, ...], seed: jax.Array, step: jax.Array) -> jax.Array:
    """32 bits a place from a hash of place, step and seed: elementwise, so it fuses.

    The mixing is Chris Wellons' ``lowbias32`` (github.com/skeeto/hash-prospector).
    """
    rows = jax.lax.broadcasted_iota(jnp.uint32, shape, 0)
    place = rows * jnp.uint32(shape[1]) + jax.lax.broadcasted_iota(jnp.uint32, shape, 1)

    def mix(bits: jax.Array) -> jax.Array:
        bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
        bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
        return bits ^ (bits >> 16)

    # Step and seed become two keys first: were the step hashed beside the place,
    # place 3 of step 5 would have the bits of place 5 of step 3.
    first = mix(mix(step.astype(jnp.uint32) ^ seed[1]) ^ seed[0])
    second = mix(first + jnp.uint32(0x9E3779B9))
    return mix(mix(place ^ first) + second)


def round_at_random(values: jax.Array, bits: jax.Array) -> jax.Array:
    """Round float32 to bfloat16, up with the probability of the part that is cut off.

    Args:
        values: Finite float32.
        bits: Uniform whole numbers below 2^16, as uint32.
    """
    raised = jax.lax.bitcast_convert_type(values, jnp.uint32) + bits
    kept = jax.lax.bitcast_convert_type(raised & jnp.uint32(0xFFFF0000), jnp.float32)
    return kept.astype(jnp.bfloat16)
