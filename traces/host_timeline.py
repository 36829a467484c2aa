"""A thread's time, split into what it did: each moment is one thing.

Events nest. The innermost whose name says what it is decides; a frame that only helps, such
as ``$builtins len`` within a fetch, belongs to what is around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.host_kinds import FETCH, KINDS, HostKind
from hloscope.traces.host_threads import HostThread
from hloscope.traces.intervals import EMPTY, Intervals, union, union_of

__all__ = ["HostTimeline", "innermost", "timeline_of"]

Times = NDArray[np.int64]


@dataclass(frozen=True)
class HostTimeline:
    """When a thread did what; what is in none of these is untraced.

    Attributes:
        kinds: Disjoint, each by itself and one from another.
    """

    kinds: Mapping[HostKind, Intervals]

    def split(self, begins: Times, ends: Times) -> Mapping[HostKind, Times]:
        """What each of many windows was spent on; the parts of each add up to it exactly.

        Args:
            begins: Where each window begins.
            ends: Where it ends.
        """
        found = {kind: each.covered(begins, ends) for kind, each in self.kinds.items()}
        rest = ends - begins
        for times in found.values():
            rest = rest - times
        return {**found, HostKind.UNTRACED: rest}

    def within(self, windows: Intervals) -> Mapping[HostKind, int]:
        """What the time in some intervals was spent on; the parts add up to it exactly."""
        parts = self.split(windows.begins, windows.ends)
        return {kind: total for kind, times in parts.items() if (total := int(times.sum()))}


def timeline_of(thread: HostThread, busy: Intervals) -> HostTimeline:
    """Split a thread's time.

    What happens within a callback is the callback's. A fetch waits as long as a device
    works, and copies when it does not.

    Args:
        thread: The thread.
        busy: When any of the host's devices worked.
    """
    known = np.flatnonzero(thread.kinds >= 0)
    begins, ends = thread.begins[known], thread.ends[known]
    times, owners = innermost(begins, ends)
    owned = np.flatnonzero(owners >= 0)
    kinds = thread.kinds[known][owners[owned]]
    found = {
        kind: union(times[owned[kinds == place]], times[owned[kinds == place] + 1])
        for place, kind in enumerate(KINDS)
    }
    callback = thread.kinds == KINDS.index(HostKind.CALLBACK)
    called = union(thread.begins[callback], thread.ends[callback])
    if len(called):
        found = {kind: each - called for kind, each in found.items()}
        found[HostKind.CALLBACK] = called
    fetched = found[FETCH]
    found[HostKind.DEVICE_WAIT] = found[HostKind.DEVICE_WAIT] | (fetched & busy)
    found[FETCH] = fetched - busy
    return HostTimeline({kind: each for kind, each in _with_rest(thread, found) if len(each)})


def _with_rest(
    thread: HostThread, found: Mapping[HostKind, Intervals]
) -> list[tuple[HostKind, Intervals]]:
    """And what no name says: other Python, other native code, and time between steps."""
    told = union_of(found.values())
    python = union(thread.begins[thread.python], thread.ends[thread.python]) - told
    native = union(thread.begins[~thread.python], thread.ends[~thread.python]) - told - python
    between = EMPTY
    if thread.steps is not None:
        steps = union(thread.steps.begins, thread.steps.ends)
        span = steps.span
        between = (EMPTY if span is None else steps.gaps(*span)) - told
    rest = {
        HostKind.PYTHON: python - between,
        HostKind.NATIVE: native - between,
        HostKind.BETWEEN: between,
    }
    return [(kind, rest.get(kind, each)) for kind, each in {**found, **rest}.items()]


def innermost(begins: Times, ends: Times) -> tuple[Times, NDArray[np.int64]]:
    """Which event is innermost from each edge to the next.

    Args:
        begins: Where each event begins, in order, of several the outermost first.
        ends: Where each ends, later than it begins.

    Returns:
        The edges in order, and of each the innermost event from there to the next one, or
        -1 for none.
    """
    number = len(begins)
    times = np.concatenate((begins, ends))
    steps = np.repeat(np.asarray([1, -1], np.int64), number)
    # What ends where another begins ends first.
    order = np.lexsort((np.arange(2 * number), steps, times))
    times, steps = times[order], steps[order]
    depths = np.cumsum(steps)
    events = np.where(steps > 0, order, -1)
    # At each depth the event that began last; a depth is first reached by a beginning.
    by_depth = np.argsort(depths, kind="stable")
    latest = np.where(events[by_depth] >= 0, np.arange(2 * number), -1)
    latest = np.maximum.accumulate(latest) if number else latest
    owners = np.empty(2 * number, np.int64)
    owners[by_depth] = events[by_depth][latest] if number else latest
    owners[depths == 0] = -1
    return times, owners
