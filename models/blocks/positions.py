"""Where a token stands and when: rotations, sines and cosines, tables of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "PositionTables",
    "grid_positions",
    "line_positions",
    "position_tables",
    "rotate",
    "sinusoidal_embedding",
]

PositionTables = Callable[[], Sequence[Any]]
"""Gives a model's tables, inside its step."""


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


def line_positions(length: int, width: int, array: Any = jnp) -> Any:
    """Fixed positions in a sequence, as in ``grid_positions``: ``[length, width]``, float32.

    Args:
        length: Number of places.
        width: Channels, even.
        array: ``jax.numpy`` or ``numpy``, which makes the table.
    """
    half = width // 2
    frequency = 10_000.0 ** -(array.arange(half, dtype="float32") / half)
    angle = array.arange(length, dtype="float32")[:, None] * frequency
    return array.concatenate((array.sin(angle), array.cos(angle)), axis=-1)


def position_tables(
    make: Callable[[Any], Sequence[Any]], batch: int, *, baked: bool
) -> PositionTables:
    """Tables that the step computes; or, as a bad example, that it holds as constants.

    Args:
        make: From ``jax.numpy`` or ``numpy`` to the tables, each with tokens and width last.
        batch: Samples that a baked table is repeated for.
        baked: Whether numpy makes the tables while the step is built, for the
            whole batch at once: ``[batch, ..., tokens, width]``.
    """
    if baked:
        baked_tables = tuple(np.repeat(table[None], batch, axis=0) for table in make(np))
        return lambda: baked_tables

    def computed() -> Sequence[Any]:
        with jax.named_scope("positions"):
            return make(jnp)

    return computed
