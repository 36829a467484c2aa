"""Softmax attention by whichever route is asked for, and the layer around it."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from hloscope.models.blocks.positions import rotate
from hloscope.models.sharding import Layout, gather_tokens, pin

__all__ = ["Attention", "AttentionRoute", "attend"]

AttentionRoute = Literal["xla", "reference", "cudnn", "flash"]

# Block lengths of Pallas's kernel: sequences are padded to a multiple of it.
_FLASH_BLOCK = 128


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
    and what it gives ``context``. On a mesh, ``tensor`` splits all of them by heads,
    and where ``sequence`` splits tokens, keys and values are gathered.

    Args:
        query: ``[batch, queries, heads, width]``.
        key: ``[batch, keys, key heads, width]``, whose heads divide the query's: each
            is for as many heads of the query, one after another.
        value: As ``key``.
        causal: Whether query i sees keys up to i only.
        route: ``xla`` leaves it to ``jax.nn``; ``reference`` writes out the two
            products, with the softmax in float32; ``cudnn`` is cuDNN's fused
            kernel for NVIDIA GPUs, in 16 bits; ``flash`` is Pallas's kernel for
            TPUs (Dao et al., arXiv:2205.14135), over sequences padded with
            masked keys to a multiple of 128.

    Returns:
        ``[batch, queries, heads, width]`` in the dtype of ``query``.
    """
    query, key, value = (
        checkpoint_name(pin(array, Layout.FEATURES), name)
        for array, name in ((query, "query"), (key, "key"), (value, "value"))
    )
    key, value = gather_tokens(key), gather_tokens(value)
    if route == "flash":
        attended = _flash(query, key, value, causal=causal)
    elif route == "reference":
        attended = _written_out(query, key, value, causal=causal)
    else:
        attended = jax.nn.dot_product_attention(
            query, key, value, is_causal=causal, implementation=route
        )
    context: jax.Array = checkpoint_name(attended, "context")
    return context


def _written_out(query: jax.Array, key: jax.Array, value: jax.Array, *, causal: bool) -> jax.Array:
    key, value = (_for_each_head(part, query.shape[2]) for part in (key, value))
    logits = jnp.einsum("bqhd,bkhd->bhqk", query, key).astype(jnp.float32)
    logits *= query.shape[-1] ** -0.5
    if causal:
        seen = jnp.arange(query.shape[1])[:, None] >= jnp.arange(key.shape[1])
        logits = jnp.where(seen, logits, -jnp.inf)
    weights = jax.nn.softmax(logits).astype(query.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


def _for_each_head(part: jax.Array, heads: int) -> jax.Array:
    each = heads // part.shape[2]
    return part if each == 1 else jnp.repeat(part, each, axis=2)


def _flash(query: jax.Array, key: jax.Array, value: jax.Array, *, causal: bool) -> jax.Array:
    from jax.experimental.pallas.ops.tpu.flash_attention import SegmentIds, flash_attention

    key, value = (_for_each_head(part, query.shape[2]) for part in (key, value))
    batch, queries, _, width = query.shape
    keys = key.shape[1]
    missing = -queries % _FLASH_BLOCK, -keys % _FLASH_BLOCK
    segments = None
    if any(missing):
        # Padding is a segment of its own, which no real query sees. A padded query
        # sees padded keys, or nothing but its own row where there are none.
        real = (jnp.arange(n + m) >= n for n, m in zip((queries, keys), missing, strict=True))
        segments = SegmentIds(
            *(jnp.broadcast_to(row.astype(jnp.int32), (batch, row.size)) for row in real)
        )
    attended: jax.Array = flash_attention(
        *(
            jnp.pad(part, ((0, 0), (0, pad), (0, 0), (0, 0))).transpose(0, 2, 1, 3)
            for part, pad in ((query, missing[0]), (key, missing[1]), (value, missing[1]))
        ),
        segment_ids=segments,
        causal=causal,
        sm_scale=width**-0.5,
    )
    return attended.transpose(0, 2, 1, 3)[:, :queries]


class Attention(nnx.Module):
    """Multi-head attention of tokens to themselves or to a context.

    Args:
        width: Channels of the tokens, in and out.
        context_width: Channels of what keys and values are made from.
        heads: Divides ``width``.
        key_heads: Heads of keys and values, which divide ``heads``; as many where ``None``
            (grouped-query attention, Ainslie et al., arXiv:2305.13245).
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
        key_heads: int | None = None,
        rotary: bool = False,
        causal: bool = False,
        route: AttentionRoute,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.heads = heads
        self.key_heads = key_heads or heads
        self.rotary = rotary
        self.causal = causal
        self.route: AttentionRoute = route
        key_width = width // heads * self.key_heads
        self.query = nnx.Linear(width, width, use_bias=False, dtype=dtype, rngs=rngs)
        self.key = nnx.Linear(context_width, key_width, use_bias=False, dtype=dtype, rngs=rngs)
        self.value = nnx.Linear(context_width, key_width, use_bias=False, dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(width, width, use_bias=False, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array, context: jax.Array | None = None) -> jax.Array:
        """Attend ``tokens`` ``[batch, t, width]`` to ``context`` ``[batch, c, context_width]``.

        Without a context they attend to themselves.
        """
        context = tokens if context is None else context
        query = self._split(self.query(tokens), self.heads)
        key = self._split(self.key(context), self.key_heads)
        value = self._split(self.value(context), self.key_heads)
        if self.rotary:
            query, key = rotate(query), rotate(key)
        attended = attend(query, key, value, causal=self.causal, route=self.route)
        mixed: jax.Array = self.out(attended.reshape(tokens.shape))
        return mixed

    @staticmethod
    def _split(features: jax.Array, heads: int) -> jax.Array:
        return features.reshape(*features.shape[:2], heads, -1)
