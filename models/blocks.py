"""Layers that several models share.

All take activations with the batch first and compute in ``dtype``; parameters
are float32 and are cast at their use.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

__all__ = [
    "Attention",
    "AttentionRoute",
    "GatedMlp",
    "ResidualBlock",
    "attend",
    "grid_positions",
    "group_norm",
    "rotate",
    "sinusoidal_embedding",
]

AttentionRoute = Literal["xla", "reference"]


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    causal: bool,
    route: AttentionRoute,
) -> jax.Array:
    """Softmax attention with logits scaled by one over the root of the head width.

    For remat policies its operands are named ``query``, ``key`` and ``value``,
    and what it gives ``context``.

    Args:
        query: ``[batch, queries, heads, width]``.
        key: ``[batch, keys, heads, width]``.
        value: As ``key``.
        causal: Whether query i sees keys up to i only.
        route: ``xla`` leaves it to ``jax.nn``; ``reference`` writes out the two
            products, with the softmax in float32.

    Returns:
        ``[batch, queries, heads, width]`` in the dtype of ``query``.
    """
    query, key, value = (
        checkpoint_name(array, name)
        for array, name in ((query, "query"), (key, "key"), (value, "value"))
    )
    if route == "xla":
        attended = jax.nn.dot_product_attention(
            query, key, value, is_causal=causal, implementation="xla"
        )
    else:
        attended = _written_out(query, key, value, causal)
    context: jax.Array = checkpoint_name(attended, "context")
    return context


def _written_out(query: jax.Array, key: jax.Array, value: jax.Array, causal: bool) -> jax.Array:
    logits = jnp.einsum("bqhd,bkhd->bhqk", query, key).astype(jnp.float32)
    logits *= query.shape[-1] ** -0.5
    if causal:
        seen = jnp.arange(query.shape[1])[:, None] >= jnp.arange(key.shape[1])
        logits = jnp.where(seen, logits, -jnp.inf)
    weights = jax.nn.softmax(logits).astype(query.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


def rotate(features: jax.Array, base: float = 10_000.0) -> jax.Array:
    """Rotary positions (Su et al., arXiv:2104.09864), computed from the positions.

    Args:
        features: ``[batch, tokens, heads, width]`` with an even width; channel i
            is rotated with channel ``i + width / 2``.
        base: Wavelength of the slowest pair over two pi.
    """
    half = features.shape[-1] // 2
    frequency = base ** -(jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(features.shape[1], dtype=jnp.float32)[:, None, None] * frequency
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    first, second = features[..., :half], features[..., half:]
    turned = jnp.concatenate(
        (first * cosine - second * sine, second * cosine + first * sine), axis=-1
    )
    return turned.astype(features.dtype)


def sinusoidal_embedding(time: jax.Array, width: int) -> jax.Array:
    """Embed ``time`` (``[batch]``, from 0 to 1) as sines and cosines: ``[batch, width]``.

    Frequencies are spaced geometrically from 1 to 1000 radians per unit.
    """
    half = width // 2
    frequency = 1000.0 ** (jnp.arange(half, dtype=jnp.float32) / (half - 1))
    angle = time[:, None] * frequency
    return jnp.concatenate((jnp.sin(angle), jnp.cos(angle)), axis=-1)


def grid_positions(side: int, width: int, array: Any = jnp) -> Any:
    """Fixed positions of a square grid's tokens, row by row: ``[side ** 2, width]``, float32.

    The sines and cosines of Vaswani et al. (arXiv:1706.03762), half of the
    channels for the row and half for the column.

    Args:
        side: Height and width of the grid.
        width: Channels, a multiple of 4.
        array: ``jax.numpy`` or ``numpy``, which makes the table.
    """
    quarter = width // 4
    frequency = 10_000.0 ** -(array.arange(quarter, dtype="float32") / quarter)
    angle = array.arange(side, dtype="float32")[:, None] * frequency
    axis = array.concatenate((array.sin(angle), array.cos(angle)), axis=-1)
    shape = (side, side, 2 * quarter)
    rows = array.broadcast_to(axis[:, None], shape)
    columns = array.broadcast_to(axis[None], shape)
    return array.concatenate((rows, columns), axis=-1).reshape(side**2, width)


class Attention(nnx.Module):
    """Multi-head attention of tokens to themselves or to a context.

    Args:
        width: Channels of the tokens, in and out.
        context_width: Channels of what keys and values are made from.
        heads: Divides ``width``.
        rotary: Whether queries and keys carry rotary positions.
        causal: Whether a token sees only itself and earlier ones.
        route: See ``attend``.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        width: int,
        context_width: int,
        heads: int,
        *,
        rotary: bool = False,
        causal: bool = False,
        route: AttentionRoute,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.heads = heads
        self.rotary = rotary
        self.causal = causal
        self.route: AttentionRoute = route
        self.query = nnx.Linear(width, width, use_bias=False, dtype=dtype, rngs=rngs)
        self.key = nnx.Linear(context_width, width, use_bias=False, dtype=dtype, rngs=rngs)
        self.value = nnx.Linear(context_width, width, use_bias=False, dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(width, width, use_bias=False, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array, context: jax.Array) -> jax.Array:
        """Attend ``tokens`` ``[batch, t, width]`` to ``context`` ``[batch, c, context_width]``."""
        query = self._split(self.query(tokens))
        key = self._split(self.key(context))
        value = self._split(self.value(context))
        if self.rotary:
            query, key = rotate(query), rotate(key)
        attended = attend(query, key, value, causal=self.causal, route=self.route)
        mixed: jax.Array = self.out(attended.reshape(tokens.shape))
        return mixed

    def _split(self, features: jax.Array) -> jax.Array:
        return features.reshape(*features.shape[:2], self.heads, -1)


class GatedMlp(nnx.Module):
    """``down(silu(gate(x)) * up(x))``, the SwiGLU of Shazeer (arXiv:2002.05202).

    For remat policies the two are named ``mlp_gate`` and ``mlp_up``.
    """

    def __init__(self, width: int, hidden: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.gate = nnx.Linear(width, hidden, use_bias=False, dtype=dtype, rngs=rngs)
        self.up = nnx.Linear(width, hidden, use_bias=False, dtype=dtype, rngs=rngs)
        self.down = nnx.Linear(hidden, width, use_bias=False, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        gate = checkpoint_name(self.gate(tokens), "mlp_gate")
        mixed: jax.Array = self.down(nnx.silu(gate) * checkpoint_name(self.up(tokens), "mlp_up"))
        return mixed


class ResidualBlock(nnx.Module):
    """Two 3x3 convolutions around a shortcut, shifted and scaled by the time embedding.

    Args:
        width: Channels in.
        out_width: Channels out; the shortcut is a 1x1 convolution where they differ.
        time_width: Channels of the time embedding.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self, width: int, out_width: int, time_width: int, *, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:
        self.norm1 = group_norm(width, dtype=dtype, rngs=rngs)
        self.conv1 = nnx.Conv(width, out_width, (3, 3), dtype=dtype, rngs=rngs)
        self.time = nnx.Linear(time_width, 2 * out_width, dtype=dtype, rngs=rngs)
        self.norm2 = group_norm(out_width, dtype=dtype, rngs=rngs)
        self.conv2 = nnx.Conv(out_width, out_width, (3, 3), dtype=dtype, rngs=rngs)
        if width != out_width:
            self.shortcut = nnx.Conv(width, out_width, (1, 1), dtype=dtype, rngs=rngs)
        self.projects = width != out_width

    def __call__(self, image: jax.Array, time: jax.Array) -> jax.Array:
        """Map ``[batch, h, w, width]`` to ``[batch, h, w, out_width]``."""
        scale, shift = jnp.split(self.time(nnx.silu(time))[:, None, None, :], 2, axis=-1)
        hidden = self.conv1(nnx.silu(self.norm1(image)))
        hidden = self.norm2(hidden) * (1 + scale) + shift
        hidden = self.conv2(nnx.silu(hidden))
        kept = self.shortcut(image) if self.projects else image
        return kept + hidden


def group_norm(width: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.GroupNorm:
    """Normalize over up to 32 equal groups of at least 2 channels; ``width`` is even."""
    return nnx.GroupNorm(width, num_groups=math.gcd(32, width // 2), dtype=dtype, rngs=rngs)
