"""Unions, intersections and differences of intervals of time, in whole picoseconds.

A set of intervals is two arrays of equal length: where each begins and where it ends,
in order, neither touching the next. Kernels overlap, nest and run side by side, so a
sum of their durations says nothing of how long a device was busy; the union does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["EMPTY", "Intervals", "outermost", "union", "union_of"]

Times = NDArray[np.int64]

_CHUNK = 1 << 15  # intervals that are sorted at once, in the processor's cache
_RUNS = 64  # rows in order, of more all is sorted


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Disjoint intervals in order; what has no length is in none.

    Attributes:
        begins: Where each begins.
        ends: Where each ends; later than it begins, earlier than the next begins.
    """

    begins: Times
    ends: Times

    def __len__(self) -> int:
        return len(self.begins)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Intervals)
            and np.array_equal(self.begins, other.begins)
            and np.array_equal(self.ends, other.ends)
        )

    @property
    def total(self) -> int:
        """Time in them, exactly."""
        return int(np.sum(self.ends - self.begins))

    @property
    def span(self) -> tuple[int, int] | None:
        """From the first beginning to the last end; ``None`` of none."""
        return (int(self.begins[0]), int(self.ends[-1])) if len(self) else None

    def __or__(self, other: Intervals) -> Intervals:
        return union(
            np.concatenate((self.begins, other.begins)), np.concatenate((self.ends, other.ends))
        )

    def __and__(self, other: Intervals) -> Intervals:
        """Where both are."""
        if not len(self) or not len(other):
            return EMPTY
        # Every pair that overlaps: for each of ours a run of theirs.
        first = np.searchsorted(other.ends, self.begins, "right")
        last = np.searchsorted(other.begins, self.ends, "left")
        runs = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(self)), runs)
        offset = np.repeat(np.cumsum(runs) - runs, runs)
        theirs = np.arange(len(mine)) - offset + np.repeat(first, runs)
        return Intervals(
            np.maximum(self.begins[mine], other.begins[theirs]),
            np.minimum(self.ends[mine], other.ends[theirs]),
        )

    def __sub__(self, other: Intervals) -> Intervals:
        """Where this one is and the other one is not."""
        span = self.span
        return EMPTY if span is None else self & other.gaps(*span)

    def longest(self, number: int) -> Intervals:
        """As many of the longest of them."""
        if len(self) <= number:
            return self
        kept = np.sort(np.argpartition(self.ends - self.begins, -number)[-number:])
        return Intervals(self.begins[kept], self.ends[kept])

    def gaps(self, begin: int, end: int) -> Intervals:
        """What of a window is in none of them.

        Args:
            begin: Where the window begins.
            end: Where it ends.
        """
        inside = self.within(begin, end)
        begins = np.append(np.int64(begin), inside.ends)
        ends = np.append(inside.begins, np.int64(end))
        long = begins < ends
        return Intervals(begins[long], ends[long])

    def within(self, begin: int, end: int) -> Intervals:
        """The part of them that lies in a window."""
        begins, ends = np.maximum(self.begins, begin), np.minimum(self.ends, end)
        long = begins < ends
        return Intervals(begins[long], ends[long])

    def covered(self, begins: Times, ends: Times) -> Times:
        """How much of each of many windows, which may overlap, is in them."""
        return self._before(ends) - self._before(begins)

    def _before(self, times: Times) -> Times:
        """Time in them before each moment."""
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.ends - self.begins)))
        at = np.searchsorted(self.begins, times, "right")
        last = np.maximum(at - 1, 0)
        inside = np.minimum(times, self.ends[last]) - self.begins[last] if len(self) else 0
        return np.where(at > 0, sums[last] + inside, 0)


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
"""No interval."""


def outermost(begins: Times, ends: Times) -> NDArray[np.bool_]:
    """Which events are in none of the others.

    Args:
        begins: When each begins, in order; of several that begin at once the longest first.
        ends: When each ends.
    """
    if not len(begins):
        return np.empty(0, np.bool_)
    reached = np.maximum.accumulate(ends)
    return np.append(True, begins[1:] >= reached[:-1])


def union(begins: Times, ends: Times, chosen: NDArray[np.bool_] | None = None) -> Intervals:
    """The union of intervals in any order, nested and overlapping ones included.

    Args:
        begins: Where each begins.
        ends: Where each ends; one that ends where it begins, or before, adds nothing.
        chosen: Which of them count; all where left out.
    """
    if len(begins) > 2 * _CHUNK:
        turns = np.flatnonzero(begins[1:] < begins[:-1]) + 1
        if len(turns) < _RUNS:
            return _merged(begins, ends, chosen, [0, *turns.tolist(), len(begins)])
    if chosen is not None:
        begins, ends = begins[chosen], ends[chosen]
    return _united(begins, ends)


def _united(begins: Times, ends: Times) -> Intervals:
    long = begins < ends
    if not long.all():
        begins, ends = begins[long], ends[long]
    if not len(begins):
        return EMPTY
    if np.any(begins[1:] < begins[:-1]):
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], ends[order]
    reached = np.maximum.accumulate(ends)
    # A new one begins where nothing before it reaches to.
    new = np.flatnonzero(begins[1:] > reached[:-1]) + 1
    return Intervals(
        begins[np.append(0, new)],
        reached[np.append(new - 1, len(reached) - 1)],
    )


def _merged(
    begins: Times, ends: Times, chosen: NDArray[np.bool_] | None, bounds: list[int]
) -> Intervals:
    """The same of a few rows that are each in order, as lanes are: one span of time after another.

    Args:
        begins: Where each begins.
        ends: Where each ends.
        chosen: Which of them count.
        bounds: Where each row begins, and where the last one ends.
    """
    rows = [slice(first, last) for first, last in itertools.pairwise(bounds)]
    cuts = np.unique(np.concatenate([begins[row][::_CHUNK] for row in rows])[1:])
    edges = [
        [row.start, *(row.start + np.searchsorted(begins[row], cuts)).tolist(), row.stop]
        for row in rows
    ]
    found: list[Intervals] = []
    # What is open at the end of a span goes on in the next one.
    open_ = EMPTY
    for span in range(len(cuts) + 1):
        parts = [slice(edge[span], edge[span + 1]) for edge in edges]
        if chosen is None:
            sides = [[side[part] for part in parts] for side in (begins, ends)]
        else:
            sides = [[side[part][chosen[part]] for part in parts] for side in (begins, ends)]
        united = _united(
            np.concatenate([open_.begins, *sides[0]]), np.concatenate([open_.ends, *sides[1]])
        )
        if len(united):
            found.append(Intervals(united.begins[:-1], united.ends[:-1]))
            open_ = Intervals(united.begins[-1:], united.ends[-1:])
    found.append(open_)
    return Intervals(
        np.concatenate([each.begins for each in found]),
        np.concatenate([each.ends for each in found]),
    )


def union_of(sets: Iterable[Intervals]) -> Intervals:
    """The union of several sets."""
    every = list(sets)
    if not every:
        return EMPTY
    return union(
        np.concatenate([each.begins for each in every]),
        np.concatenate([each.ends for each in every]),
    )
