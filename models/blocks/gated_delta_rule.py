"""The gated delta rule by products inside chunks and a loop over chunks."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["gated_delta_rule"]

# Smaller matrices would fill little of a matrix unit: a TPU's has 128 columns.
_FEWEST_ROWS = 16


def gated_delta_rule(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    decay: jax.Array,
    rate: jax.Array,
    *,
    chunk: int,
) -> jax.Array:
    """A state that fades, and that each token corrects where its key points.

    Yang, Kautz and Hatamizadeh (arXiv:2412.06464): with ``a = exp(decay)`` and ``r``
    the rate, ``state = a (I - r k k') state + r k v'`` and ``output = state' q``,
    along the tokens. In a chunk with running sums ``l`` of the decays, that from the
    chunk before being ``state``, token i adds ``k_i d_i'`` with the rows ``d`` of the
    solution of ``(I + L) d = r (v - exp(l) k state)``, where
    ``L_ij = r_i exp(l_i - l_j) k_i k_j`` for the tokens j before i. States, sums of
    decays and the inverse are float32.

    Args:
        query: ``[batch, tokens, heads, key_width]``.
        key: As ``query``, of unit length, or the rule does not contract.
        value: ``[batch, tokens, heads, width]``.
        decay: Logarithm of what is left of the state, 0 or less: float32,
            ``[batch, tokens, heads]``.
        rate: How much of a correction is made, 0 to 1: float32, as ``decay``.
        chunk: Tokens of a chunk, a power of two, which divides those of a sequence.

    Returns:
        As ``value``.

    Raises:
        ValueError: When the tokens are no whole chunks, or those no power of two.
    """
    batch, tokens, heads, width = value.shape
    if tokens % chunk or chunk & (chunk - 1):
        raise ValueError(f"{tokens} tokens are no whole chunks of {chunk}, a power of two")
    dtype = value.dtype

    def chunks(array: jax.Array) -> jax.Array:
        """``[chunks, batch, heads, chunk, ...]``."""
        apart = array.reshape(batch, tokens // chunk, chunk, heads, *array.shape[3:])
        return jnp.moveaxis(apart, (1, 3), (0, 2))

    query, key, value, decay, rate = map(chunks, (query, key, value, decay, rate))
    total = jnp.cumsum(decay, axis=-1)
    gaps = total[..., :, None] - total[..., None, :]
    earlier = jnp.tril(jnp.ones((chunk, chunk), bool))
    # Masked before the exponential, so that nothing above the diagonal overflows.
    shrink = jnp.exp(jnp.where(earlier, gaps, -jnp.inf))

    def product(axes: str, first: jax.Array, last: jax.Array) -> jax.Array:
        # Put out in the type of its operands, or its gradients' products would be float32.
        return jnp.einsum(axes, first, last).astype(jnp.float32)

    alike = product("nbhik,nbhjk->nbhij", key, key) * shrink * rate[..., None]
    solved = _inverse(jnp.tril(alike, -1)).astype(dtype)
    grown = jnp.exp(total)[..., None]
    wanted = product("nbhij,nbhjv->nbhiv", solved, (value * rate[..., None]).astype(dtype))
    faded = (key * rate[..., None] * grown).astype(dtype)
    known = product("nbhij,nbhjk->nbhik", solved, faded).astype(dtype)
    weights = (product("nbhik,nbhjk->nbhij", query, key) * shrink).astype(dtype)
    asked = (query * grown).astype(dtype)
    to_end = (key * jnp.exp(total[..., -1:] - total)[..., None]).astype(dtype)

    def through(state: jax.Array, inputs: Any) -> tuple[jax.Array, jax.Array]:
        wanted, known, weights, asked, to_end, shrunk = inputs
        kept = state.astype(dtype)
        corrections = (wanted - product("bhik,bhkv->bhiv", known, kept)).astype(dtype)
        output = product("bhij,bhjv->bhiv", weights, corrections)
        output += product("bhik,bhkv->bhiv", asked, kept)
        added = product("bhik,bhiv->bhkv", to_end, corrections)
        return state * shrunk[..., None, None] + added, output.astype(dtype)

    start = jnp.zeros((batch, heads, key.shape[-1], width), jnp.float32)
    each = (wanted, known, weights, asked, to_end, jnp.exp(total[..., -1]))
    _, outputs = jax.lax.scan(through, start, each)
    return jnp.moveaxis(outputs, (0, 2), (1, 3)).reshape(batch, tokens, heads, width)


def _inverse(lower: jax.Array) -> jax.Array:
    """Invert the identity plus ``lower``, ``[..., size, size]`` and zero from the diagonal up.

    By halves, in two products of each two: powers of ``lower`` would grow where keys are
    alike, and cancel. Its size is a power of two.
    """
    size = lower.shape[-1]
    if size <= 2:
        return jnp.eye(size, dtype=lower.dtype) - lower
    half = size // 2
    both = jnp.stack((lower[..., :half, :half], lower[..., half:, half:]), axis=-3)
    inverses = _inverse(both)
    first, last = inverses[..., 0, :, :], inverses[..., 1, :, :]
    product = _exact_product if half >= _FEWEST_ROWS else _summed_product
    below = -product(product(last, lower[..., half:, :half]), first)
    above = jnp.concatenate((first, jnp.zeros_like(first)), axis=-1)
    return jnp.concatenate((above, jnp.concatenate((below, last), axis=-1)), axis=-2)


# A TPU multiplies float32 as bfloat16, a GPU as TF32, where nothing is said.
_exact_product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def _summed_product(left: jax.Array, right: jax.Array) -> jax.Array:
    """The same, element by element."""
    return jnp.sum(left[..., :, :, None] * right[..., None, :, :], axis=-2)
