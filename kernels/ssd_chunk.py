"""One chunk of the SSD recurrence and its gradients, for the bodies of Pallas kernels.

In them everything has two dimensions, and every step is one that Mosaic and Triton
both take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

__all__ = [
    "BACKWARD_PRODUCTS",
    "FORWARD_PRODUCTS",
    "SsdSizes",
    "chunk_backward",
    "chunk_forward",
    "decay_totals",
]

Precision = jax.lax.DotAlgorithmPreset | None

FORWARD_PRODUCTS, BACKWARD_PRODUCTS = (1, 1, 2), (3, 2, 5)
"""Products of a chunk: so many of tokens with tokens over the state's width, over the
head's, and of tokens with the state. As ``chunk_forward`` and ``chunk_backward`` do them.
"""


def decay_totals(decay: jax.Array, chunk: int) -> jax.Array:
    """Running sums of log decays in each chunk: ``[batch, heads, chunks, 1, chunk]``."""
    batch, tokens, heads = decay.shape
    by_head = decay.transpose(0, 2, 1).reshape(batch, heads, tokens // chunk, 1, chunk)
    return jnp.cumsum(by_head, axis=-1)


@dataclass(frozen=True, slots=True)
class SsdSizes:
    """Sizes of a call."""

    batch: int
    heads: int
    chunks: int
    chunk: int
    state: int
    width: int

    @classmethod
    def of(cls, query: jax.Array, value: jax.Array, total: jax.Array) -> SsdSizes:
        """Read them from the operands."""
        batch, heads, chunks, _, chunk = total.shape
        return cls(batch, heads, chunks, chunk, query.shape[-1], value.shape[-1])

    @property
    def states(self) -> jax.ShapeDtypeStruct:
        """The states before all chunks."""
        shape = (self.batch, self.heads, self.chunks, self.state, self.width)
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def cost(self, products: tuple[int, int, int], arrays: Sequence[Any]) -> pl.CostEstimate:
        """Products, exponentials, and every array read or written once.

        Elementwise work is left out, as in hloscope's own counts of FLOPs.
        """
        over_state, over_width, with_state = products
        inside = self.chunk * (over_state * self.state + over_width * self.width)
        a_token = inside + with_state * self.state * self.width
        tokens = self.batch * self.heads * self.chunks * self.chunk
        return pl.CostEstimate(
            flops=2 * tokens * a_token,
            transcendentals=tokens * (self.chunk + 2),
            bytes_accessed=sum(one.size * one.dtype.itemsize for one in arrays),
        )


@dataclass(frozen=True, slots=True)
class _Decays:
    """What is left of a chunk's tokens and state, from running sums of log decays.

    Attributes:
        between: Of token j at token i, 0 where j is later, ``[chunk, chunk]``.
        since: Of the state before the chunk at each token, ``[chunk, 1]``.
        until: Of each token after the chunk, ``[chunk, 1]``.
        through: Of the state before the chunk after it, ``[1, 1]``.
    """

    between: jax.Array
    since: jax.Array
    until: jax.Array
    through: jax.Array


def _decays(total: jax.Array) -> _Decays:
    """Read running sums of log decays, ``[1, chunk]``."""
    rows, columns = _places(total.shape[1])
    upright = _turned(total, axis=1)
    last = jnp.sum(jnp.where(_is_last(total.shape), total, 0.0), axis=1, keepdims=True)
    # Masked before the exponential, which may overflow above the diagonal.
    between = jnp.exp(jnp.where(rows >= columns, upright - total, -jnp.inf))
    return _Decays(between, jnp.exp(upright), jnp.exp(last - upright), jnp.exp(last))


def _places(length: int) -> tuple[jax.Array, jax.Array]:
    shape = (length, length)
    rows = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
    return rows, jax.lax.broadcasted_iota(jnp.int32, shape, 1)


def _is_last(shape: tuple[int, ...]) -> jax.Array:
    return jax.lax.broadcasted_iota(jnp.int32, shape, 1) == shape[1] - 1


def _turned(line: jax.Array, axis: int) -> jax.Array:
    """A row as a column (``axis`` 1) or the reverse (0), by way of a diagonal.

    Neither compiler takes the reshape or the transpose of so narrow an array.
    """
    rows, columns = _places(line.size)
    return jnp.sum(jnp.where(rows == columns, line, 0.0), axis=axis, keepdims=True)


def _product(
    left: jax.Array, right: jax.Array, precision: Precision, *, over: tuple[int, int] = (1, 0)
) -> jax.Array:
    """Sums of products along an axis of each operand, in float32."""
    summed = (((over[0],), (over[1],)), ((), ()))
    return jax.lax.dot_general(left, right, summed, precision, jnp.float32)


def chunk_forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    total: jax.Array,
    state: jax.Array,
    *,
    precision: Precision = None,
) -> tuple[jax.Array, jax.Array]:
    """One chunk of one head, by products; Dao and Gu, arXiv:2405.21060, section 6.

    Args:
        query: ``[chunk, state]``.
        key: As ``query``.
        value: ``[chunk, width]``.
        total: Running sums of the chunk's log decays, ``[1, chunk]``.
        state: What the chunks before left, float32, ``[state, width]``.
        precision: Of the products, where it is not JAX's default.

    Returns:
        The chunk's output and the state after it, both float32.
    """
    dtype, left = value.dtype, _decays(total)
    weights = (_product(query, key, precision, over=(1, 1)) * left.between).astype(dtype)
    output = _product(weights, value, precision)
    output += _product(query, state.astype(dtype), precision) * left.since
    aged = (value * left.until).astype(dtype)
    return output, state * left.through + _product(key, aged, precision, over=(0, 0))


def chunk_backward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    total: jax.Array,
    state: jax.Array,
    of_output: jax.Array,
    of_state: jax.Array,
    *,
    precision: Precision = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Gradients of :func:`chunk_forward`, worked out by hand.

    Args:
        query: As there, and so the four that follow.
        key: As there.
        value: As there.
        total: As there.
        state: As there.
        of_output: Gradient of the chunk's output, as ``value``.
        of_state: Gradient of the state after the chunk, float32.
        precision: As there.

    Returns:
        Gradients of the five operands, float32.
    """
    dtype, left = value.dtype, _decays(total)
    before, after = state.astype(dtype), of_state.astype(dtype)
    weights = _product(query, key, precision, over=(1, 1)) * left.between
    of_weights = _product(of_output, value, precision, over=(1, 1))
    of_scores = (of_weights * left.between).astype(dtype)
    faded = (of_output * left.since).astype(dtype)
    aged = (value * left.until).astype(dtype)
    added = _product(key, after, precision) * left.until

    of_query = _product(of_scores, key, precision) + _product(faded, before, precision, over=(1, 1))
    of_key = _product(of_scores, query, precision, over=(0, 0)) + _product(
        aged, after, precision, over=(1, 1)
    )
    of_value = _product(weights.astype(dtype), of_output, precision, over=(0, 0)) + added
    earlier = of_state * left.through + _product(query, faded, precision, over=(0, 0))

    # Every log decay's gradient is that of the factor which it is in, times the factor.
    each = of_weights * weights
    until = jnp.sum(added * value, axis=1, keepdims=True)
    since = jnp.sum(
        _product(query, before, precision) * left.since * of_output, axis=1, keepdims=True
    )
    upright = jnp.sum(each, axis=1, keepdims=True) + since - until
    of_total = _turned(upright, axis=0) - jnp.sum(each, axis=0, keepdims=True)
    through = jnp.sum(of_state * state * left.through, axis=1, keepdims=True)
    last = jnp.sum(until, axis=0, keepdims=True) + jnp.sum(through, axis=0, keepdims=True)
    of_total += jnp.where(_is_last(total.shape), last, 0.0)
    return of_query, of_key, of_value, of_total, earlier
