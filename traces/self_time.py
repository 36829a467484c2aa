"""How long each event ran without those that are nested in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.codes import chunks

__all__ = ["self_times"]

Times = NDArray[np.int64]
Lanes = NDArray[np.int16] | NDArray[np.int32]


def self_times(begins: Times, ends: Times, lanes: Lanes) -> Times:
    """What is left of each event's duration without its children's on the same lane.

    A child that ends after its parent, as clocks are rounded, counts up to the parent's
    end only. Streams of a GPU do not nest: of them nothing is sorted.

    Args:
        begins: Where each begins.
        ends: Where each ends.
        lanes: Which lane each is on.
    """
    found = ends - begins
    if not len(found) or not _may_nest(begins, ends, lanes):
        return found
    order = np.lexsort((-ends, begins, lanes))
    first, last, lane = begins[order], ends[order], lanes[order]
    starts = [0, *(np.flatnonzero(lane[1:] != lane[:-1]) + 1).tolist()]
    for a, b in zip(starts, [*starts[1:], len(lane)], strict=True):
        if b - a > 1:
            _subtract(found, order[a:b], first[a:b], last[a:b])
    return found


def _may_nest(begins: Times, ends: Times, lanes: NDArray[np.int16] | NDArray[np.int32]) -> bool:
    """Whether an event begins before the one before it on its lane has ended.

    Lanes usually stand one behind the other, each in the order of time: then an event
    that begins where the one before it ends, or later, is nested in none.
    """
    turns = 0
    for chunk in chunks(len(begins) - 1):
        behind = slice(chunk.start + 1, chunk.stop + 1)
        another = lanes[:-1][chunk] != lanes[behind]
        if np.any((begins[behind] < ends[:-1][chunk]) & ~another):
            return True
        turns += int(np.count_nonzero(another))
    # More turns than lanes: events of several lanes are mixed.
    return turns >= int(np.count_nonzero(np.bincount(lanes)))


def _subtract(found: Times, events: Times, begins: Times, ends: Times) -> None:
    reached = np.maximum.accumulate(ends)
    nested = np.append(False, begins[1:] < reached[:-1])
    if not nested.any():
        return
    # An event that nothing before it reaches into begins afresh: only what follows it
    # until the next such one can nest.
    tops = np.flatnonzero(~nested)
    sizes = np.diff(np.append(tops, len(nested)))
    for top, size in zip(tops[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        stack: list[tuple[int, int]] = []
        group = slice(top, top + size)
        for event, begin, end in zip(
            events[group].tolist(), begins[group].tolist(), ends[group].tolist(), strict=True
        ):
            while stack and stack[-1][1] <= begin:
                stack.pop()
            if stack:
                parent, limit = stack[-1]
                found[parent] -= min(end, limit) - begin
            stack.append((event, end))
