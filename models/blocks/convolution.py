"""What convolutional models are made of; images stand as ``[batch, h, w, channels]``."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

__all__ = ["ResidualBlock", "doubled", "group_norm"]


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


def doubled(image: jax.Array) -> jax.Array:
    """Double height and width by repeating each pixel."""
    batch, height, width, channels = image.shape
    grid = image[:, :, None, :, None, :]
    grid = jnp.broadcast_to(grid, (batch, height, 2, width, 2, channels))
    return grid.reshape(batch, 2 * height, 2 * width, channels)
