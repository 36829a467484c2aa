"""The recurrence of Mamba-2 by products inside chunks and a loop over chunks."""

from __future__ import annotations

import jax
import jax.numpy as jnp

__all__ = ["state_space_duality"]


def state_space_duality(
    query: jax.Array, key: jax.Array, value: jax.Array, decay: jax.Array, *, chunk: int
) -> jax.Array:
    """``state = exp(decay) state + key value'``, ``output = query state``, along the tokens.

    Dao and Gu's block decomposition (arXiv:2405.21060, section 6). With ``l`` the
    running sum of log decays in a chunk, token i takes
    ``exp(l_i - l_j) (q_i k_j) v_j`` from the tokens j of its chunk and
    ``exp(l_i) q_i state`` from the chunks before. States and sums of decays are float32.

    Args:
        query: ``[batch, tokens, state]``, for all heads.
        key: As ``query``.
        value: ``[batch, tokens, heads, width]``.
        decay: Logarithm of what is left of the state, 0 or less: float32,
            ``[batch, tokens, heads]``.
        chunk: Tokens of a chunk, which divide those of a sequence.

    Returns:
        As ``value``.

    Raises:
        ValueError: When the tokens are no whole chunks.
    """
    batch, tokens, heads, width = value.shape
    if tokens % chunk:
        raise ValueError(f"{tokens} tokens are no whole chunks of {chunk}")
    dtype, shape = value.dtype, (batch, tokens // chunk, chunk)
    query, key = query.reshape(*shape, -1), key.reshape(*shape, -1)
    # Heads stand before tokens, whose two axes then are those of a product.
    value = value.reshape(*shape, heads, width).transpose(0, 1, 3, 2, 4)
    total = jnp.cumsum(decay.reshape(*shape, heads).transpose(0, 1, 3, 2), axis=-1)
    gaps = total[..., :, None] - total[..., None, :]
    earlier = jnp.tril(jnp.ones((chunk, chunk), bool))
    # Masked before the exponential: above the diagonal it may overflow, which
    # would make the gradient of what is thrown away no number.
    shrink = jnp.exp(jnp.where(earlier, gaps, -jnp.inf))
    # Products put out the type of their operands, or their gradients' would be float32.
    scores = jnp.einsum("bcin,bcjn->bcij", query, key).astype(jnp.float32)
    weights = (scores[:, :, None] * shrink).astype(dtype)
    inside = jnp.einsum("bchij,bchjd->bchid", weights, value).astype(jnp.float32)
    to_end = jnp.exp(total[..., -1:] - total)
    aged = (value * to_end[..., None]).astype(dtype)
    added = jnp.einsum("bcjn,bchjd->bchnd", key, aged).astype(jnp.float32)

    def through(
        state: jax.Array, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        own, shrunk = inputs
        return state * shrunk[..., None, None] + own, state

    start = jnp.zeros_like(added[:, 0])
    chunks = (jnp.moveaxis(added, 1, 0), jnp.moveaxis(jnp.exp(total[..., -1]), 1, 0))
    _, before = jax.lax.scan(through, start, chunks)
    carried = jnp.einsum("bcin,cbhnd->bchid", query, before.astype(dtype))
    output = inside + carried.astype(jnp.float32) * jnp.exp(total)[..., None]
    return output.transpose(0, 1, 3, 2, 4).reshape(batch, tokens, heads, width).astype(dtype)
