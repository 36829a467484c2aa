"""When a host launched what a device ran later.

A device runs behind its host, so that what it does within a step's annotation may be of the
step before. What ties the two together is the correlation id that a GPU's tracer gives to a
launch and to its kernel. Without one, the n-th execution of a program is of its n-th call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.host_kinds import program_called
from hloscope.traces.intervals import outermost
from hloscope.traces.recording import Lane, Recording

__all__ = ["Launches", "call_times", "launches_of"]

Times = NDArray[np.int64]

_CORRELATION = "correlation_id"


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of one host that say what they launched.

    Attributes:
        begins: When each began, in order.
        ends: When each returned.
        correlations: What each launched bears the same number, which is not 0.
    """

    begins: Times
    ends: Times
    correlations: Times


def launches_of(recording: Recording) -> Launches:
    """Every launch that says what it launched."""
    columns = []
    for lane in _host_lanes(recording):
        if _CORRELATION in lane.stats.names():
            numbers, known = lane.stats.numbers(_CORRELATION)
            mine = np.flatnonzero(known & (numbers > 0))
            columns.append((lane.begins[mine], lane.ends[mine], numbers[mine]))
    if not columns:
        return Launches(*(np.empty(0, np.int64) for _ in range(3)))
    begins, ends, correlations = (np.concatenate(each) for each in zip(*columns, strict=True))
    order = np.argsort(begins, kind="stable")
    return Launches(begins[order], ends[order], correlations[order])


def call_times(recording: Recording, program: str) -> Times:
    """When any thread called a program, in order; a call within a call is the same one.

    Args:
        recording: Of the host.
        program: Name of its module, without a number.
    """
    found: list[Times] = []
    for lane in _host_lanes(recording):
        words = lane.labels.words
        mine = [code for code, word in enumerate(words) if program_called(word) == program]
        if mine:
            events = np.flatnonzero(np.isin(lane.labels.codes, mine))
            events = events[np.lexsort((-lane.ends[events], lane.begins[events]))]
            begins = lane.begins[events]
            found.append(begins[outermost(begins, lane.ends[events])])
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)


def _host_lanes(recording: Recording) -> list[Lane]:
    return [
        lane
        for section in recording.sections
        if section.name.startswith("/host:")
        for lane in section.lanes
    ]
