"""Rounding float32 to bfloat16 at random, by bits that a hash gives."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

__all__ = ["hashed_bits", "round_at_random"]


def hashed_bits(
    shape: tuple[int, ...], seed: jax.Array | tuple[jax.Array, jax.Array], step: jax.Array
) -> jax.Array:
    """32 bits a place from a hash of place, step and seed: elementwise, so it fuses.

    The mixing is Chris Wellons' ``lowbias32`` (github.com/skeeto/hash-prospector).

    Args:
        shape: Of the array that is to be rounded; places are counted modulo 2^32.
        seed: Two uint32, which tell arrays apart.
        step: A whole number.
    """
    place = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(shape[axis + 1 :]) % (1 << 32))
        place += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride

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

    A bfloat16 is the upper half of a float32: what is added below it carries into it as
    often as the lower half is large.

    Args:
        values: float32; infinities and what is no number stay what they are.
        bits: Uniform whole numbers below 2^16, as uint32, of the values' shape.
    """
    raised = jax.lax.bitcast_convert_type(values, jnp.uint32) + bits
    upper = jax.lax.convert_element_type(raised >> 16, jnp.uint16)
    rounded = jax.lax.bitcast_convert_type(upper, jnp.bfloat16)
    return jnp.where(jnp.isfinite(values), rounded, values.astype(jnp.bfloat16))
