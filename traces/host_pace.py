"""Who sets the pace of a device's steps: the device, its host, or what feeds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.host_kinds import HostKind
from hloscope.traces.host_threads import Calls, HostThread
from hloscope.traces.idle_gaps import IdleGap
from hloscope.traces.intervals import Intervals, union
from hloscope.traces.launches import Launches
from hloscope.traces.steps import Annotations, Step, Steps, StepSource
from hloscope.traces.timeline import Device

__all__ = ["Bound", "DevicePace", "Lead", "bound_of", "calls_of_steps", "launched_at", "leads_of"]

Times = NDArray[np.int64]

IDLE = 0.1
"""Share of the window up to which an idle device is said to set the pace itself."""

_MOST = 0.5  # of the idle time, from which one cause is the cause


class Bound(Enum):
    """What the steps of a device wait for."""

    DEVICE = "device-bound"
    HOST = "host-bound"
    INPUT = "input-bound"
    BETWEEN = "bound between steps"
    UNCLEAR = "unclear"


INPUT = (HostKind.INPUT,)
HOST = (
    HostKind.LAUNCH,
    HostKind.DISPATCH,
    HostKind.PLACEMENT,
    HostKind.TRANSFER,
    HostKind.COMPILE,
    HostKind.CALLBACK,
    HostKind.PYTHON,
    HostKind.NATIVE,
)
"""What is the host's own work."""

DEVICE = (HostKind.DEVICE_WAIT, HostKind.DEVICE_WORK)
"""What is the device's: the host had given it its work and waited for it."""

_CAUSES: Mapping[Bound, tuple[HostKind, ...]] = {
    Bound.DEVICE: DEVICE,
    Bound.INPUT: INPUT,
    Bound.HOST: HOST,
    Bound.BETWEEN: (HostKind.BETWEEN,),
}


@dataclass(frozen=True, slots=True)
class Lead:
    """How far the host was ahead of the device at one step.

    Attributes:
        time: From the host's launch of the step until the device began it, in picoseconds;
            0 where the device began before the launch returned.
        steps: Steps beyond it that the host had launched by then.
        asked: Whether the host asked for the step's results before it launched the next;
            ``None`` of the last step.
    """

    time: int
    steps: int
    asked: bool | None


@dataclass(frozen=True)
class DevicePace:
    """What a device waited for in the chosen window.

    Attributes:
        bound: What sets the pace.
        reason: Why it is that, or why it is not clear.
        idle: What the host did while the device was idle, in picoseconds; the parts add up
            to the idle time. Empty where no thread is known to drive it.
        leads: Of each step in the window; empty where launches are not told apart.
        unknown: Why they are not, or empty.
        waits: Idle time of the device behind steps whose results the host asked for before
            it launched the next.
        gaps: The longest idle times.
    """

    bound: Bound
    reason: str
    idle: Mapping[HostKind, int]
    leads: tuple[Lead, ...]
    unknown: str
    waits: int
    gaps: tuple[IdleGap, ...]

    @property
    def runs_ahead(self) -> bool:
        """Whether the host had usually launched another step when one began."""
        return bool(self.leads) and median(lead.steps for lead in self.leads) >= 1


def bound_of(idle: Mapping[HostKind, int], busy: int, length: int) -> tuple[Bound, str]:
    """What sets the pace, and why.

    A device that works nearly all the time sets it itself; otherwise what the host did for
    most of the time in which the device was idle.

    Args:
        idle: What the host did then; empty where that is not known.
        busy: Time in which the device worked.
        length: Of the window.
    """
    if not length:
        return Bound.UNCLEAR, "the window is empty"
    waited = length - busy
    if waited <= IDLE * length:
        return Bound.DEVICE, f"the device worked {busy / length:.0%} of the time"
    start = f"the device was idle {waited / length:.0%} of the time"
    if not idle:
        return Bound.UNCLEAR, f"{start}, and no thread of the host is known to drive it"
    causes = {bound: sum(idle.get(kind, 0) for kind in kinds) for bound, kinds in _CAUSES.items()}
    bound = max(causes, key=causes.__getitem__)
    if causes[bound] >= _MOST * waited:
        kinds = _CAUSES[bound]
        if bound is Bound.DEVICE:
            return bound, (
                f"{start}, and for {causes[bound] / waited:.0%} of it the host waited for it: the "
                "gaps are the device's own"
            )
        first = max(kinds, key=lambda kind: idle.get(kind, 0))
        named = first.value if bound is not Bound.HOST else f"mostly {first.value}"
        return bound, f"{start}, {causes[bound] / waited:.0%} of it in the host's {_of(named)}"
    first = max(idle, key=idle.__getitem__)
    share = idle[first] / waited
    if first is HostKind.UNTRACED:
        return Bound.UNCLEAR, (
            f"{start}, and for {share:.0%} of it nothing is recorded of the host's thread"
        )
    return Bound.UNCLEAR, f"{start}, and nothing that the host did took most of it"


def _of(named: str) -> str:
    return {"between steps": "time between steps", "input": "input pipeline"}.get(
        named, f"own work, {named}" if named.startswith("mostly") else named
    )


def calls_of_steps(calls: Calls, steps: Steps, thread: HostThread) -> tuple[Calls | None, str]:
    """The calls that launched each of some steps, or ``None`` and why they are not known.

    Those within a step's annotation are its own. Without annotations, or with calls outside
    of them, the calls are the steps in their order, as many of them each.

    Args:
        calls: Of the program that the steps run.
        steps: Of a device.
        thread: What made the calls.
    """
    executions = len(steps.rows)
    if not executions:
        return None, "no step is known"
    if steps.source is StepSource.ANNOTATED and thread.steps is not None:
        found = _within(calls, steps.rows, thread.steps)
        if found is not None:
            return found, ""
    each, rest = divmod(len(calls), executions)
    if not each or rest:
        return None, f"the host made {len(calls)} calls for {executions} steps"
    return Calls(calls.begins[::each], calls.ends[each - 1 :: each]), ""


def _within(calls: Calls, steps: Sequence[Step], annotations: Annotations) -> Calls | None:
    """The calls within the annotation of each step; ``None`` where one has none."""
    mine, place = [], -1
    for step in steps:  # of some annotations a device has no work: the rest are in their order
        place = annotations.numbers.index(step.number, place + 1)
        mine.append(place)
    which = annotations.containing(calls.begins)
    inside = np.flatnonzero(which >= 0)
    first = np.searchsorted(which[inside], mine, "left")
    last = np.searchsorted(which[inside], mine, "right") - 1
    if np.any(last < first):
        return None
    return Calls(calls.begins[inside[first]], calls.ends[inside[last]])


def leads_of(
    steps: Steps, gaps: Intervals, calls: Calls, launched: Times, thread: HostThread
) -> tuple[tuple[Lead, ...], tuple[int, ...]]:
    """How far the host was ahead of each step, and the idle time behind each that it waited for.

    Args:
        steps: Of the device.
        gaps: When the device did nothing.
        calls: Those that launched each.
        launched: When each was launched.
        thread: The thread that made the calls.
    """
    begins = np.asarray([step.begin for step in steps.rows], np.int64)
    ends = np.asarray([step.end for step in steps.rows], np.int64)
    times = np.maximum(begins - launched, 0)
    returned = np.sort(calls.ends)
    ahead = np.searchsorted(returned, begins, "right") - np.arange(len(begins)) - 1
    following = calls.begins[1:]
    asked = (ends[:-1] <= following) & _asked(thread, ends[:-1], calls.begins[:-1], following)
    waits = gaps.covered(ends[:-1], np.maximum(begins[1:], ends[:-1]))
    waits = np.where(asked, waits, 0)
    leads = tuple(
        Lead(*row)
        for row in zip(
            times.tolist(),
            np.maximum(ahead, 0).tolist(),
            [*asked.tolist(), None],
            strict=True,
        )
    )
    return leads, tuple(waits.tolist())


def _asked(thread: HostThread, ended: Times, called: Times, following: Times) -> NDArray[np.bool_]:
    """Whether, after each call and before the next, the host asks and gets no answer before."""
    asks = union(thread.begins[thread.asking], thread.ends[thread.asking])
    if not len(asks):
        return np.zeros(len(ended), np.bool_)
    # The last question before the next call.
    last = np.searchsorted(asks.begins, following, "left") - 1
    known = last >= 0
    last = np.maximum(last, 0)
    return known & (asks.begins[last] >= called) & (asks.ends[last] >= ended)


def launched_at(launches: Launches, device: Device, steps: Sequence[Step], calls: Calls) -> Times:
    """When the host had launched each step.

    By the launch that the step's first kernel is correlated with, where there is one; else
    where the call returns.

    Args:
        launches: Of the host.
        device: The device.
        steps: Of the device, in order.
        calls: Those that launched each.
    """
    work = device.work
    begins = np.asarray([step.begin for step in steps], np.int64)
    first = np.flatnonzero(_is_any(work.begins, begins) & (work.correlations != 0))
    if not len(first) or not len(launches.begins):
        return calls.ends
    wanted = np.zeros(len(begins), np.int64)
    wanted[np.searchsorted(begins, work.begins[first])] = work.correlations[first]
    mine = np.flatnonzero(_is_any(launches.correlations, np.unique(wanted)))
    mine = mine[np.argsort(launches.correlations[mine], kind="stable")]
    if not len(mine):
        return calls.ends
    known = launches.correlations[mine]
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, launches.ends[mine[place]], calls.ends)


def _is_any(values: Times, ordered: Times) -> NDArray[np.bool_]:
    """Which of many values are among a few, which are in order."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[place] == values
    return found
