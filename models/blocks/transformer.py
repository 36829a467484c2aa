"""Attention and an MLP, each around a shortcut: plain, or modulated by a condition."""

from __future__ import annotations

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from hloscope.models.blocks.attention import Attention, AttentionRoute
from hloscope.models.blocks.mlp import Mlp
from hloscope.models.blocks.modulation import ModulatedBranch
from hloscope.models.sharding import pin

__all__ = ["DiTBlock", "TransformerBlock"]

# Channels between the MLP's two products, by those of a token.
_WIDENING = 4


class TransformerBlock(nnx.Module):
    """Attention and an MLP, each behind a LayerNorm.

    Args:
        width: Channels of a token.
        heads: Divides ``width``.
        causal: Whether a token sees only itself and earlier ones.
        route: See ``hloscope.models.blocks.attention.attend``.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        route: AttentionRoute,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.norm1 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.attention = Attention(
            width, width, heads, causal=causal, route=route, dtype=dtype, rngs=rngs
        )
        self.norm2 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.mlp = Mlp(width, _WIDENING * width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        with jax.named_scope("attention"):
            mixed = self.attention(self.norm1(tokens))
            tokens = pin(tokens + checkpoint_name(mixed, "attention_out"))
        with jax.named_scope("mlp"):
            mixed = self.mlp(self.norm2(tokens))
            kept: jax.Array = checkpoint_name(mixed, "mlp_out")
            return tokens + kept


class DiTBlock(nnx.Module):
    """Attention and an MLP, each shifted, scaled and gated by the condition.

    Args:
        width: Channels of a token.
        heads: Divides ``width``.
        condition_width: Channels of the condition.
        route: See ``hloscope.models.blocks.attention.attend``.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        condition_width: int,
        *,
        route: AttentionRoute,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        attention = Attention(width, width, heads, route=route, dtype=dtype, rngs=rngs)
        mlp = Mlp(width, _WIDENING * width, dtype=dtype, rngs=rngs)
        self.attention = ModulatedBranch(
            attention, "attention", width, condition_width, dtype=dtype, rngs=rngs
        )
        self.mlp = ModulatedBranch(mlp, "mlp", width, condition_width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape, given ``[batch, condition_width]``."""
        return self.mlp(self.attention(tokens, condition), condition)
