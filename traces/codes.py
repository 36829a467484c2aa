"""Columns of few distinct numbers as places in a list of them, and what is added up by place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["chunks", "counts_by", "distinct", "places_of", "whole_sums"]

_SPARSE = 4  # a table of so many places for each number is still worth its memory
_SMALL = 1_000_000
_CHUNK = 1 << 15  # rows whose keys stay in the processor's cache

Places = NDArray[np.int64] | NDArray[np.int32] | NDArray[np.int16]
Column = NDArray[np.int64] | NDArray[np.int32]


def chunks(rows: int, least: int = _CHUNK) -> Iterator[slice]:
    """Rows a few at a time: what is computed of them stays in the processor's cache.

    Args:
        rows: All of them.
        least: Of a chunk, where each costs something by itself.
    """
    step = max(_CHUNK, least)
    return (slice(first, first + step) for first in range(0, rows, step))


def counts_by(places: Places, size: int, chosen: NDArray[np.bool_] | None = None) -> list[int]:
    """How many rows have each place; those of place -1 count nowhere.

    Args:
        places: Of each row.
        size: How many places there are.
        chosen: Which rows count; all where left out.
    """
    counts = np.zeros(size + 1, np.int64)
    for chunk in chunks(len(places), size):
        some = places[chunk] if chosen is None else places[chunk][chosen[chunk]]
        counts += np.bincount(some.astype(np.int64) + 1, minlength=size + 1)
    return [int(count) for count in counts[1:].tolist()]


def whole_sums(places: Places, times: NDArray[np.int64], size: int) -> list[int]:
    """Sums of times by place; those of place -1 count nowhere.

    Floating-point sums are exact only up to 2^53 ps, two and a half hours.
    """
    high, low = np.zeros(size + 1), np.zeros(size + 1)
    for chunk in chunks(len(places), size):
        at = places[chunk].astype(np.int64) + 1
        high += np.bincount(at, times[chunk] >> 32, size + 1)
        low += np.bincount(at, times[chunk] & 0xFFFFFFFF, size + 1)
    return [(int(a) << 32) + int(b) for a, b in zip(high[1:], low[1:], strict=True)]


def places_of(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Each number's place among the distinct ones, and these in order.

    Numbers that lie close together are looked up in a table, which takes a fraction of
    the time that sorting them does.
    """
    if not len(numbers):
        return np.empty(0, np.int32), np.empty(0, np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > _table(len(numbers)):
        known = np.unique(numbers)
        return np.searchsorted(known, numbers).astype(np.int32), known
    places, shifted = _looked_up([(numbers, low, high - low + 1)])
    return places, shifted + low


def distinct(columns: Sequence[Column]) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
    """Each row's place among the distinct rows of several columns, and these rows."""
    if not len(columns[0]):
        return np.empty(0, np.int32), []
    parts: list[tuple[Column, int, int]] = []
    values: list[Sequence[int]] = []
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if high - low <= _table(len(column)):
            parts.append((column, low, high - low + 1))
            values.append(range(low, high + 1))
        else:
            places, known = places_of(column.astype(np.int64, copy=False))
            parts.append((places, 0, len(known)))
            values.append(known.tolist())
    sizes = [size for _, _, size in parts]
    if math.prod(sizes) <= _table(len(columns[0])):
        places, keys = _looked_up(parts)
        return places, [_row(key, values) for key in keys.tolist()]
    # Of what the columns before it hold and the last one: few pairs of them occur.
    which, rows = distinct(columns[:-1])
    column, low, size = parts[-1]
    places, keys = places_of(which.astype(np.int64) * size + (column - low))
    return places, [(*rows[key // size], values[-1][key % size]) for key in keys.tolist()]


def _table(rows: int) -> int:
    return _SPARSE * rows + _SMALL


def _looked_up(
    parts: Sequence[tuple[Column, int, int]],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The same for keys that are made of small numbers, by a table of all of them.

    Args:
        parts: Columns, the lowest number in each, and how many a table of it has.

    Returns:
        Places, and the distinct keys in order.
    """
    rows = len(parts[0][0])
    total = math.prod(size for _, _, size in parts)
    seen = np.zeros(total, np.bool_)
    for chunk in chunks(rows):
        seen[_keys(parts, chunk)] = True
    keys = np.flatnonzero(seen)
    places = np.zeros(rows, np.int32)
    if len(keys) > 1:
        table = np.empty(total, np.int32)
        table[keys] = np.arange(len(keys), dtype=np.int32)
        for chunk in chunks(rows):
            places[chunk] = table[_keys(parts, chunk)]
    return places, keys


def _keys(parts: Sequence[tuple[Column, int, int]], chunk: slice) -> NDArray[np.int64]:
    """One number for each row: those of the columns side by side, the first one highest."""
    column, low, _ = parts[0]
    found = column[chunk].astype(np.int64)
    found -= low
    for column, low, size in parts[1:]:
        if size > 1:
            found *= size
            found += column[chunk]
            found -= low
    return found


def _row(key: int, values: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The numbers that a key was made of."""
    row = []
    for each in reversed(values):
        key, place = divmod(key, len(each))
        row.append(each[place])
    return tuple(reversed(row))
