"""Between the pixels of an image and the tokens of a transformer."""

from __future__ import annotations

import jax

__all__ = ["patches", "unpatched"]


def patches(grid: jax.Array, size: int) -> jax.Array:
    """Cut ``[batch, h, w, channels]`` into squares of ``size``, row by row.

    Returns:
        ``[batch, h * w / size ** 2, size ** 2 * channels]``.
    """
    batch, height, width, channels = grid.shape
    cut = grid.reshape(batch, height // size, size, width // size, size, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(
        batch, height * width // size**2, size**2 * channels
    )


def unpatched(tokens: jax.Array, side: int, size: int) -> jax.Array:
    """Put ``patches`` of a square grid together again: ``[batch, side, side, channels]``."""
    batch = tokens.shape[0]
    cut = tokens.reshape(batch, side // size, side // size, size, size, -1)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, side, side, -1)
