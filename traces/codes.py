"""Columns of few distinct numbers as places in a list of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct", "places_of"]

_SPARSE = 4  # a table of so many places for each number is still worth its memory
_SMALL = 1_000_000


def places_of(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Each number's place among the distinct ones, and these in order.

    Numbers that lie close together are looked up in a table, which takes a fraction of
    the time that sorting them does.
    """
    if not len(numbers):
        return np.empty(0, np.int32), np.empty(0, np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > _SPARSE * len(numbers) + _SMALL:
        known, inverse = np.unique(numbers, return_inverse=True)
        return inverse.astype(np.int32), known
    shifted = numbers - low
    seen = np.zeros(high - low + 1, np.bool_)
    seen[shifted] = True
    known = np.flatnonzero(seen)
    places = np.zeros(len(seen), np.int32)
    places[known] = np.arange(len(known), dtype=np.int32)
    return places[shifted], known + low


def distinct(
    columns: Sequence[NDArray[np.int64] | NDArray[np.int32]],
) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
    """Each row's place among the distinct rows of several columns, and these rows."""
    size = len(columns[0])
    combined = np.zeros(size, np.int64)
    rows: list[tuple[int, ...]] = [()]
    for column in columns:
        places, values = places_of(column.astype(np.int64, copy=False))
        # Of what there is so far and this column: few pairs of them occur.
        which, pairs = places_of(combined * max(len(values), 1) + places)
        rows = [
            (*rows[pair // max(len(values), 1)], int(values[pair % max(len(values), 1)]))
            for pair in pairs.tolist()
        ]
        combined = which.astype(np.int64)
    return combined.astype(np.int32), rows
