"""When a host launched what a device ran later.

A device runs behind its host, so that what it does within a step's annotation may be of the
step before. What ties the two together is the correlation id that a GPU's tracer gives to a
launch and to its kernel. Without one, the n-th execution of a program is of its n-th call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.recording import Lane, Recording

__all__ = ["Launches", "calls_of", "launches_of"]

Times = NDArray[np.int64]

_CALL = re.compile(r"PjitFunction\((.*)\)")  # what JAX calls its dispatch of a jitted function
_NUMBERED = re.compile(r"\(-?\d+\)$")
_CORRELATION = "correlation_id"


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of one host.

    Attributes:
        times: When each began, in order.
        correlations: What each launched bears the same number.
    """

    times: Times
    correlations: Times


def launches_of(recording: Recording) -> Launches:
    """Every launch that says what it launched."""
    times, correlations = [], []
    for lane in _host_lanes(recording):
        if _CORRELATION in lane.stats.names():
            numbers, known = lane.stats.numbers(_CORRELATION)
            times.append(lane.begins[known])
            correlations.append(numbers[known])
    if not times:
        return Launches(np.empty(0, np.int64), np.empty(0, np.int64))
    when = np.concatenate(times)
    order = np.argsort(when, kind="stable")
    return Launches(when[order], np.concatenate(correlations)[order])


def calls_of(recording: Recording, module: str) -> Times:
    """When the host called a jitted function, in order; a call within a call is the same one.

    Args:
        recording: Of the host.
        module: Name of the function's module, ``jit_step`` or ``jit_step(7)``.
    """
    wanted = _NUMBERED.sub("", module).removeprefix("jit_")
    found: list[Times] = []
    for lane in _host_lanes(recording):
        mine = [
            code
            for code, word in enumerate(lane.labels.words)
            if (match := _CALL.fullmatch(word)) and match[1] == wanted
        ]
        if mine:
            events = np.flatnonzero(np.isin(lane.labels.codes, mine))
            events = events[np.lexsort((-lane.ends[events], lane.begins[events]))]
            reached = np.maximum.accumulate(lane.ends[events])
            outer = np.append(True, lane.begins[events][1:] >= reached[:-1])
            found.append(lane.begins[events][outer])
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)


def _host_lanes(recording: Recording) -> list[Lane]:
    return [
        lane
        for section in recording.sections
        if section.name.startswith("/host:")
        for lane in section.lanes
    ]
