"""The longest times in which a device did nothing, and what its host did then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.host_kinds import HostKind, is_users
from hloscope.traces.host_threads import HostThread
from hloscope.traces.host_timeline import HostTimeline
from hloscope.traces.intervals import Intervals
from hloscope.traces.steps import Steps

__all__ = ["LONGEST", "IdleGap", "longest_gaps"]

LONGEST = 5
"""How many gaps of a device are kept."""

_MOST = 0.5  # of a gap, from which an event covers most of it
_SOME = 0.1  # from which it says something of it at all


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A time in which a device did nothing; times are in picoseconds.

    Attributes:
        begin: From the recording's origin.
        end: From the recording's origin.
        step: The step that it lies in, or before; ``None`` where it lies behind them, or
            none is known.
        inside: Whether it lies in that step, not before it.
        kind: What the host did for most of it; ``None`` where no thread is known to drive it.
        time: How long it did that.
        event: The innermost event of the host that covers most of it, else the one that covers
            most; empty where none covers a tenth.
        covered: How much of it that event covers.
        frame: The innermost frame of the user's that covers most of it, empty for none.
    """

    begin: int
    end: int
    step: int | None
    inside: bool
    kind: HostKind | None
    time: int
    event: str
    covered: int
    frame: str

    @property
    def length(self) -> int:
        """How long it is."""
        return self.end - self.begin


def longest_gaps(
    gaps: Intervals,
    steps: Steps,
    thread: HostThread | None,
    timeline: HostTimeline | None,
    number: int = LONGEST,
) -> tuple[IdleGap, ...]:
    """The longest gaps of a device, the longest first.

    Args:
        gaps: When the device did nothing.
        steps: Of the device.
        thread: The thread that drives it.
        timeline: What that did.
        number: How many at most.
    """
    lengths = gaps.ends - gaps.begins
    chosen = np.argsort(-lengths, kind="stable")[:number]
    users = np.empty(0, np.bool_)
    if thread is not None:
        users = np.asarray([is_users(word) for word in thread.labels.words], np.bool_)
    found = []
    for begin, end in zip(gaps.begins[chosen].tolist(), gaps.ends[chosen].tolist(), strict=True):
        step, inside = _step_at(steps, begin, end)
        kind, time, event, covered, frame = None, 0, "", 0, ""
        if thread is not None and timeline is not None:
            parts = timeline.within(Intervals(np.asarray([begin]), np.asarray([end])))
            kind = max(parts, key=parts.__getitem__)
            time = parts[kind]
            event, covered, frame = _innermost(thread, begin, end, users)
        found.append(IdleGap(begin, end, step, inside, kind, time, event, covered, frame))
    return tuple(found)


def _step_at(steps: Steps, begin: int, end: int) -> tuple[int | None, bool]:
    for row in steps.rows:
        if row.begin <= begin and end <= row.end:
            return row.number, True
        if row.begin >= end:
            return row.number, False
    return None, False


def _innermost(
    thread: HostThread, begin: int, end: int, users: NDArray[np.bool_]
) -> tuple[str, int, str]:
    """Of the events that cover most of a gap the shortest, else the one that covers most."""
    last = int(np.searchsorted(thread.begins, end, "left"))
    events = np.flatnonzero(thread.ends[:last] > begin)
    if not len(events):
        return "", 0, ""
    begins, ends = thread.begins[events], thread.ends[events]
    codes, words = thread.labels.codes[events], thread.labels.words
    covered = np.minimum(ends, end) - np.maximum(begins, begin)
    most = np.flatnonzero(covered >= _MOST * (end - begin))
    most = most[np.argsort((ends - begins)[most], kind="stable")]
    best = int(most[0]) if len(most) else int(np.argmax(covered))
    frames = most[users[codes[most]]]
    frame = words[int(codes[frames[0]])] if len(frames) else ""
    time = int(covered[best])
    if time < _SOME * (end - begin):
        return "", 0, frame
    return words[int(codes[best])], time, frame
