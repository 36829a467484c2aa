"""Attention to a video in two steps: within each frame, then across the frames.

Tokens stand frame by frame, with the same places in each.
"""

from __future__ import annotations

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from hloscope.models.blocks.attention import Attention, AttentionRoute
from hloscope.models.blocks.mlp import Mlp
from hloscope.models.sharding import pin

__all__ = ["AcrossFrames", "VideoTransformerBlock", "WithinFrames"]


class WithinFrames(nnx.Module):
    """Attention of the tokens of each frame: ``[batch, frames * places, width]``."""

    def __init__(self, attention: Attention, frames: int) -> None:
        self.attention = attention
        self.frames = frames

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map the tokens to the same shape."""
        batch, length, width = tokens.shape
        frames = tokens.reshape(batch * self.frames, length // self.frames, width)
        return self.attention(frames).reshape(tokens.shape)


class AcrossFrames(nnx.Module):
    """Attention of the tokens of each place: ``[batch, frames * places, width]``."""

    def __init__(self, attention: Attention, frames: int) -> None:
        self.attention = attention
        self.frames = frames

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map the tokens to the same shape."""
        batch, length, width = tokens.shape
        places = length // self.frames
        by_place = tokens.reshape(batch, self.frames, places, width).swapaxes(1, 2)
        mixed = self.attention(by_place.reshape(batch * places, self.frames, width))
        mixed = mixed.reshape(batch, places, self.frames, width)
        return mixed.swapaxes(1, 2).reshape(tokens.shape)


class VideoTransformerBlock(nnx.Module):
    """Attention within frames, attention across frames and an MLP, each behind a LayerNorm.

    Args:
        width: Channels of a token.
        heads: Divides ``width``.
        frames: Of a video.
        route: See ``hloscope.models.blocks.attention.attend``.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        frames: int,
        *,
        route: AttentionRoute,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        def attention() -> Attention:
            return Attention(width, width, heads, route=route, dtype=dtype, rngs=rngs)

        self.norm1 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.within = WithinFrames(attention(), frames)
        self.norm2 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.across = AcrossFrames(attention(), frames)
        self.norm3 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.mlp = Mlp(width, 4 * width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, frames * places, width]`` to the same shape."""
        with jax.named_scope("attention"):
            mixed = self.within(self.norm1(tokens))
            tokens = pin(tokens + checkpoint_name(mixed, "attention_out"))
        with jax.named_scope("temporal"):
            mixed = self.across(self.norm2(tokens))
            tokens = pin(tokens + checkpoint_name(mixed, "temporal_out"))
        with jax.named_scope("mlp"):
            mixed = self.mlp(self.norm3(tokens))
            kept: jax.Array = checkpoint_name(mixed, "mlp_out")
            return tokens + kept
