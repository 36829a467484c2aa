"""How long each event ran without those that are nested in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["self_times"]

Times = NDArray[np.int64]


def self_times(begins: Times, ends: Times, lanes: NDArray[np.int16]) -> Times:
    """What is left of each event's duration without its children's on the same lane.

    A child that ends after its parent, as clocks are rounded, counts up to the parent's
    end only. Streams of a GPU do not nest: they take no time here.

    Args:
        begins: Where each begins.
        ends: Where each ends.
        lanes: Which lane each is on.
    """
    found = ends - begins
    order = np.lexsort((-ends, begins, lanes))
    first, last, lane = begins[order], ends[order], lanes[order]
    starts = [0, *(np.flatnonzero(lane[1:] != lane[:-1]) + 1).tolist()]
    for a, b in zip(starts, [*starts[1:], len(lane)], strict=True):
        if b - a > 1:
            _subtract(found, order[a:b], first[a:b], last[a:b])
    return found


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
