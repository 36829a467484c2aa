"""What the host spent a window and each step on, and what it called in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.host_kinds import FETCH, KINDS, HostKind, is_users, program_called
from hloscope.traces.host_threads import Calls, HostThread, outer_events
from hloscope.traces.host_timeline import HostTimeline
from hloscope.traces.intervals import EMPTY, union
from hloscope.traces.windows import Window

__all__ = ["HostBudget", "HostCalls", "HostStep", "budget_of"]

_AS_LONG = 0.9  # of the longest, from which another is as long


@dataclass(frozen=True, slots=True)
class HostStep:
    """One step of the host: from where it begins to where the next one begins.

    Attributes:
        number: As annotated, else its place.
        begin: In picoseconds from the recording's origin.
        end: Of the last step where its annotation, or its call, ends.
        times: What it was spent on; the parts add up to it.
    """

    number: int
    begin: int
    end: int
    times: Mapping[HostKind, int]

    @property
    def wall(self) -> int:
        """How long it took."""
        return self.end - self.begin

    @property
    def own(self) -> int:
        """Time in which the host did not wait for the device, nor was the device."""
        waited = (HostKind.DEVICE_WAIT, HostKind.DEVICE_WORK)
        return self.wall - sum(self.times.get(kind, 0) for kind in waited)


@dataclass(frozen=True, slots=True)
class HostCalls:
    """Calls of one kind that begin in a window; none of them is in another one.

    Attributes:
        number: How many.
        time: Until they return, or the window ends, in picoseconds.
        event: The name that most of that time has; empty for none.
        caller: The Python frame that the longest of them stands in, if it is known not to be
            JAX's own; else empty.
    """

    number: int = 0
    time: int = 0
    event: str = ""
    caller: str = ""


@dataclass(frozen=True)
class HostBudget:
    """What the thread that drives a run spent its time on; times are in picoseconds.

    Attributes:
        thread: Its name.
        why: How it is known to drive the run.
        python: Whether the Python tracer ran on it.
        window: The window.
        times: What the window was spent on; the parts add up to it.
        program: The module that devices ran longest.
        calls: Calls of each program.
        fetches: Fetches of results, with the time that they wait.
        questions: Whatever asks for results: fetches, and waiting for them.
        placements: Arguments placed.
        between: What the thread did longest between steps, by its name; empty for nothing.
        steps: Each step of the host; none where they are not known.
    """

    thread: str
    why: str
    python: bool
    window: Window
    times: Mapping[HostKind, int]
    program: str
    calls: Mapping[str, HostCalls]
    fetches: HostCalls
    questions: HostCalls
    placements: HostCalls
    between: str
    steps: tuple[HostStep, ...]

    @property
    def counted(self) -> tuple[HostStep, ...]:
        """The steps that begin in the window."""
        window = self.window
        return tuple(step for step in self.steps if window.begin <= step.begin < window.end)


def budget_of(
    thread: HostThread,
    timeline: HostTimeline,
    window: Window,
    program: str,
    calls: Calls | None,
    numbers: Sequence[int],
) -> HostBudget:
    """The host's budget.

    Args:
        thread: The thread that drives the run.
        timeline: Its time by what it did.
        window: What of it counts.
        program: The module that devices ran longest.
        calls: The calls that begin the steps, where no step is annotated; ``None`` where
            they are not known.
        numbers: Of the steps that they begin.
    """
    edges = np.asarray([[window.begin], [window.end]], np.int64)
    parts = timeline.split(edges[0], edges[1])
    # What happens within a callback is the callback's.
    called = timeline.kinds.get(HostKind.CALLBACK, EMPTY)
    outside = called.covered(thread.begins, thread.begins + 1) == 0
    placed = outside & (thread.kinds == KINDS.index(HostKind.PLACEMENT))
    fetched = outside & (thread.kinds == KINDS.index(FETCH))
    return HostBudget(
        thread=thread.name,
        why=thread.why,
        python=bool(thread.python.any()),
        window=window,
        times={kind: int(times[0]) for kind, times in parts.items() if times[0]},
        program=program,
        calls=_called(thread, window),
        fetches=_calls(thread, window, outer_events(thread, fetched)),
        questions=_calls(thread, window, outer_events(thread, outside & thread.asking)),
        placements=_calls(thread, window, outer_events(thread, placed)),
        between=_longest_between(thread, timeline, window),
        steps=_steps(thread, timeline, calls, numbers),
    )


def _steps(
    thread: HostThread, timeline: HostTimeline, calls: Calls | None, numbers: Sequence[int]
) -> tuple[HostStep, ...]:
    if thread.steps is not None:
        begins, last, numbers = thread.steps.begins, thread.steps.ends[-1:], thread.steps.numbers
    elif calls is not None and len(calls):
        begins, last = calls.begins, calls.ends[-1:]
    else:
        return ()
    ends = np.append(begins[1:], last)
    parts = timeline.split(begins, ends)
    lists = {kind: times.tolist() for kind, times in parts.items()}
    return tuple(
        HostStep(
            number,
            begin,
            end,
            {kind: times[place] for kind, times in lists.items() if times[place]},
        )
        for place, (number, begin, end) in enumerate(
            zip(numbers, begins.tolist(), ends.tolist(), strict=True)
        )
    )


def _calls(thread: HostThread, window: Window, events: NDArray[np.int64]) -> HostCalls:
    """What some events, none of them in another, are within a window."""
    begins = thread.begins[events]
    events = events[(begins >= window.begin) & (begins < window.end)]
    if not len(events):
        return HostCalls()
    times = np.minimum(thread.ends[events], window.end) - thread.begins[events]
    codes = thread.labels.codes[events]
    most = int(np.argmax(np.bincount(codes, times)))
    return HostCalls(
        number=len(events),
        time=int(times.sum()),
        event=thread.labels.words[most],
        caller=_caller(thread, int(events[np.argmax(times)])),
    )


def _caller(thread: HostThread, event: int) -> str:
    """The innermost frame around an event that is neither JAX's nor Python's own."""
    around = np.flatnonzero(thread.python[:event] & (thread.ends[:event] >= thread.ends[event]))
    for frame in reversed(around.tolist()):
        name = thread.labels.words[int(thread.labels.codes[frame])]
        if is_users(name):
            return name
    return ""


def _called(thread: HostThread, window: Window) -> Mapping[str, HostCalls]:
    """Calls by program, of those that are in no other call."""
    programs = [program_called(word) for word in thread.labels.words]
    calling = np.asarray([program is not None for program in programs], np.bool_)
    if not calling.any():
        return {}
    events = outer_events(thread, calling[thread.labels.codes])
    codes = thread.labels.codes[events]
    found: dict[str, HostCalls] = {}
    for program in {program for program in programs if program is not None}:
        mine = np.asarray([each == program for each in programs], np.bool_)
        calls = _calls(thread, window, events[mine[codes]])
        if calls.number:
            found[program] = calls
    return dict(sorted(found.items(), key=lambda each: -each[1].time))


def _longest_between(thread: HostThread, timeline: HostTimeline, window: Window) -> str:
    """The name of the event that covers most of the time between steps: of several the inner."""
    between = timeline.kinds.get(HostKind.BETWEEN)
    if between is None:
        return ""
    between = between.within(window.begin, window.end)
    codes, size = thread.labels.codes, len(thread.labels.words)
    # What also covers steps is the loop itself, or what is around it.
    assert thread.steps is not None
    steps = union(thread.steps.begins, thread.steps.ends)
    apart = np.flatnonzero(steps.covered(thread.begins, thread.ends) == 0)
    covered = between.covered(thread.begins[apart], thread.ends[apart])
    apart, covered = apart[covered > 0], covered[covered > 0]
    if not len(apart):
        return ""
    # Of a frame and the one inside of it that takes as long the inner says more.
    sums = np.bincount(codes[apart], covered, size)
    longest = sums.max()
    enough = np.flatnonzero(sums >= _AS_LONG * longest)
    depths = np.asarray([thread.begins[apart][codes[apart] == code][0] for code in enough])
    return thread.labels.words[int(enough[np.argmax(depths)])]
