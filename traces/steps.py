"""Where steps begin and end: as annotated, as a TPU has them, or inferred from launches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.codes import chunks, counts_by
from hloscope.traces.intervals import Intervals
from hloscope.traces.lanes import STEP_NUMBER, LaneKind, lane_kind
from hloscope.traces.launches import Launches, call_times, launches_of
from hloscope.traces.recording import Lane, Recording, TextColumn
from hloscope.traces.timeline import Device
from hloscope.traces.work import Work

__all__ = [
    "Annotations",
    "Step",
    "StepSource",
    "Steps",
    "annotations_of",
    "longest_program",
    "steady_window",
    "steps_of",
]

_FEWEST = 4  # steps of which the usual one can be told
_UNUSUAL, _WORTH = 3, 0.05
_NUMBERED = re.compile(r"\(-?\d+\)$")


class StepSource(Enum):
    """How the steps are known."""

    ANNOTATED = "annotated by StepTraceAnnotation"
    DEVICE = "the device's own step line"
    INFERRED = "inferred: executions of the program that ran longest"
    NONE = "not known"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one device.

    Attributes:
        number: As annotated, else its place.
        begin: When its work begins, in picoseconds from the recording's origin.
        end: When its work ends.
        busy: Time in which the device worked between the two.
        gap: Time in which the device was idle between the end of the step before and its
            beginning: other programs may run there; 0 of the first.
        host: Time that the host spent inside of the annotation; ``None`` without one.
    """

    number: int
    begin: int
    end: int
    busy: int
    gap: int
    host: int | None

    @property
    def wall(self) -> int:
        """From its beginning to its end."""
        return self.end - self.begin


@dataclass(frozen=True)
class Steps:
    """The steps of one device.

    Attributes:
        source: How they are known.
        name: What the annotation, or the program, is called.
        rows: In their order.
    """

    source: StepSource
    name: str
    rows: tuple[Step, ...]


@dataclass(frozen=True)
class Annotations:
    """What a program said of its steps while it ran.

    Attributes:
        lane: The thread.
        events: Which of its events they are, in the order of time.
        name: What they are called.
        numbers: ``step_num`` of each.
    """

    lane: Lane
    events: NDArray[np.int64]
    name: str
    numbers: tuple[int, ...]

    @property
    def begins(self) -> NDArray[np.int64]:
        """Where each begins."""
        return self.lane.begins[self.events]

    @property
    def ends(self) -> NDArray[np.int64]:
        """Where each ends."""
        return self.lane.ends[self.events]

    def containing(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of them each moment lies in; -1 for none."""
        place = np.searchsorted(self.begins, times, "right") - 1
        return np.where((place >= 0) & (times < self.ends[place]), place, -1)

    def rows(
        self, device: Device, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[Step, ...]:
        """Steps by when the work of each begins and ends; there is none where it never does."""
        found = np.flatnonzero(begins <= ends).tolist()
        if not found:
            return ()
        spent = (self.ends - self.begins)[found].tolist()
        numbers = [self.numbers[place] for place in found]
        return _rows(device, numbers, begins[found], ends[found], spent)

    def nowhere(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A beginning and an end for each, of no work yet."""
        size = len(self.numbers)
        limits = np.iinfo(np.int64)
        return np.full(size, limits.max), np.full(size, limits.min)


def steps_of(recording: Recording, device: Device, launches: Launches | None = None) -> Steps:
    """The steps of a device; work is told to be a step's by the launch that it follows.

    Args:
        recording: Of its host.
        device: The device.
        launches: Of the host, where they are known already.
    """
    annotated = annotations_of(recording)
    if annotated is not None:
        rows = (
            _by_launch(device, annotated, launches or launches_of(recording))
            or _by_call(recording, device, annotated)
            or _by_execution(device, annotated)
        )
        if rows:
            return Steps(StepSource.ANNOTATED, annotated.name, rows)
    if len(device.steps):
        work = device.steps
        rows = _rows(
            device,
            [
                int(word) if STEP_NUMBER.fullmatch(word) else n
                for n, word in enumerate(_words(work))
            ],
            np.sort(work.begins),
            work.ends[np.argsort(work.begins, kind="stable")],
            None,
        )
        return Steps(StepSource.DEVICE, "Steps", rows)
    return _inferred(device)


def _words(work: Work) -> list[str]:
    order = np.argsort(work.begins, kind="stable")
    return [work.labels.words[code] for code in work.labels.codes[order].tolist()]


def annotations_of(recording: Recording) -> Annotations | None:
    """The annotation that most events of the host have."""
    best: tuple[Lane, NDArray[np.bool_], NDArray[np.int64]] | None = None
    for section in recording.sections:
        for lane in section.lanes:
            if "step_num" not in lane.stats.names():
                continue
            if lane_kind(section.name, lane) not in (LaneKind.HOST, LaneKind.THREAD):
                continue
            numbers, known = lane.stats.numbers("step_num")
            if known.any() and (best is None or known.sum() > best[1].sum()):
                best = lane, known, numbers
    if best is None:
        return None
    lane, known, numbers = best
    # One annotation, should there be several: the one that most of them have.
    codes = lane.labels.codes[known]
    most = int(np.argmax(np.bincount(codes)))
    mine = np.flatnonzero(known & (lane.labels.codes == most))
    mine = mine[np.argsort(lane.begins[mine], kind="stable")]
    return Annotations(lane, mine, lane.labels.words[most], tuple(numbers[mine].tolist()))


def _by_launch(device: Device, steps: Annotations, launches: Launches) -> tuple[Step, ...]:
    """All work that was launched within each annotation, by its correlation with the launch."""
    work = device.work
    if not work.correlations.any():
        return ()
    which = steps.containing(launches.begins)
    inside = np.flatnonzero(which >= 0)
    if not len(inside):
        return ()
    known, of_step = launches.correlations[inside], which[inside]
    if np.any(known[1:] < known[:-1]):
        order = np.argsort(known, kind="stable")
        known, of_step = known[order], of_step[order]
    begins, ends = steps.nowhere()
    for chunk in chunks(len(work)):
        asked = work.correlations[chunk]
        place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        mine = np.flatnonzero(known[place] == asked)
        np.minimum.at(begins, of_step[place[mine]], work.begins[chunk][mine])
        np.maximum.at(ends, of_step[place[mine]], work.ends[chunk][mine])
    return steps.rows(device, begins, ends)


def _by_call(recording: Recording, device: Device, steps: Annotations) -> tuple[Step, ...]:
    """Executions of the program that ran longest, by the call that each is of: the n-th."""
    runs = _executions(device)
    if runs is None:
        return ()
    calls = call_times(recording, longest_program(device))
    if len(calls) != len(runs[0]):
        return ()
    return _of_runs(device, steps, steps.containing(calls), runs)


def _by_execution(device: Device, steps: Annotations) -> tuple[Step, ...]:
    """Executions of the program that ran longest: as many as the annotations, or a multiple."""
    runs = _executions(device)
    if runs is None:
        return ()
    each, rest = divmod(len(runs[0]), len(steps.numbers))
    if rest or not each:
        return ()
    return _of_runs(device, steps, np.repeat(np.arange(len(steps.numbers)), each), runs)


def _of_runs(
    device: Device,
    steps: Annotations,
    which: NDArray[np.int64],
    runs: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> tuple[Step, ...]:
    """Steps of executions that belong to some annotations, -1 for none."""
    begins, ends = steps.nowhere()
    mine = np.flatnonzero(which >= 0)
    np.minimum.at(begins, which[mine], runs[0][mine])
    np.maximum.at(ends, which[mine], runs[1][mine])
    return steps.rows(device, begins, ends)


def _executions(device: Device) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """When each execution of the program that ran longest begins and ends."""
    if len(device.modules):
        work = device.modules
        mine = _events_of(work.labels, int(np.argmax(_times_by(work.labels, work))))
        begins, ends = work.begins[mine], work.ends[mine]
        order = np.argsort(begins, kind="stable")
        return begins[order], ends[order]
    work = device.work
    if not len(work) or not work.modules.words:
        return None
    program = int(np.argmax(_times_by(work.modules, work)))
    mine = _events_of(work.modules, program)
    if work.runs[mine].any():
        # A copy may say the program without its run: it is no execution by itself.
        numbered = _where((work.modules.codes == program) & (work.runs != 0))
        return _by_key(work, numbered, work.runs[numbered])
    return _by_repetition(work, mine)


_Chosen = NDArray[np.int64] | slice
"""Places of events; a slice of all of them copies nothing."""


def _times_by(column: TextColumn, work: Work) -> NDArray[np.float64]:
    """Durations added up by the words of a column."""
    size = len(column.words) + 1  # the first is for events without a word
    found = np.zeros(size)
    for chunk in chunks(len(work), size):
        durations = work.ends[chunk] - work.begins[chunk]
        found += np.bincount(column.codes[chunk] + np.int32(1), durations, size)
    return found[1:]


def _events_of(column: TextColumn, code: int) -> _Chosen:
    return _where(column.codes == code)


def _where(chosen: NDArray[np.bool_]) -> _Chosen:
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


def _by_key(
    work: Work, mine: _Chosen, keys: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    found, places = np.unique(keys, return_inverse=True)
    begins = np.full(len(found), np.iinfo(np.int64).max)
    ends = np.full(len(found), np.iinfo(np.int64).min)
    np.minimum.at(begins, places, work.begins[mine])
    np.maximum.at(ends, places, work.ends[mine])
    order = np.argsort(begins, kind="stable")
    return begins[order], ends[order]


def _by_repetition(work: Work, mine: _Chosen) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Executions by an operation that each has once: the rarest, which is not in a loop."""
    operations, begins, ends = work.operations.codes[mine], work.begins[mine], work.ends[mine]
    counts = counts_by(operations, len(work.operations.words))
    if not any(counts):
        return None
    executions = min(filter(None, counts))
    once = np.append(np.equal(counts, executions), False)  # the last is for events without a word
    # Of those the one that comes first marks the beginnings.
    candidates = _where(once[operations])
    marker = operations[candidates][np.argmin(begins[candidates])]
    marks = np.sort(begins[operations == marker])
    if begins.min() < marks[0]:
        # What comes before it, in a loop, belongs to its execution.
        every = np.sort(begins)
        ranks = np.searchsorted(every, marks)
        marks = every[ranks - ranks[0]]
    return marks, _reached(marks, begins, ends)


def _reached(
    marks: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The last end of what begins between each mark and the next one."""
    reached = marks.copy()
    for chunk in chunks(len(begins)):
        places = np.searchsorted(marks, begins[chunk], "right") - 1
        np.maximum.at(reached, places, ends[chunk])
    return reached


def _inferred(device: Device) -> Steps:
    runs = _executions(device)
    if runs is None:
        return Steps(StepSource.NONE, "", ())
    begins, ends = runs
    rows = _rows(device, list(range(len(begins))), begins, ends, None)
    return Steps(StepSource.INFERRED, longest_program(device), rows)


def longest_program(device: Device) -> str:
    """The module that a device ran longest, without its number; empty for none."""
    work = device.modules if len(device.modules) else device.work
    column = work.labels if len(device.modules) else work.modules
    totals = _times_by(column, work)
    return _NUMBERED.sub("", column.words[int(np.argmax(totals))]) if totals.any() else ""


def _rows(
    device: Device,
    numbers: Sequence[int],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    host: list[int] | None,
) -> tuple[Step, ...]:
    busy = device.busy.covered(begins, ends).tolist()
    before = np.minimum(np.append(begins[:1], ends[:-1]), begins)
    gaps = (begins - before - device.busy.covered(before, begins)).tolist()
    spent_by_host: Sequence[int | None] = host if host is not None else [None] * len(numbers)
    return tuple(
        Step(number, begin, end, work, gap, spent)
        for number, begin, end, work, gap, spent in zip(
            numbers,
            begins.tolist(),
            ends.tolist(),
            busy,
            gaps,
            spent_by_host,
            strict=True,
        )
    )


def steady_window(steps: Steps, busy: Intervals) -> tuple[int, int] | None:
    """The steps after those that only start up.

    A profiler's start, a first compile or a first batch leaves the device idle within
    the first steps and between them. A step starts up where it is idle, with the gap
    behind it, more than three times as long as the usual one and a twentieth of a step.
    The window begins behind the last of those at the front, among which one may be usual;
    what is idle later is part of how the program runs.

    Args:
        steps: Of the device.
        busy: When the device worked.

    Returns:
        Where the window begins and ends; ``None`` with fewer than four steps.
    """
    rows = steps.rows
    if len(rows) < _FEWEST or not len(busy):
        return None
    idle = np.asarray([row.wall - row.busy + after.gap for row, after in pairwise(rows)])
    walls = np.asarray([row.wall for row in rows])
    long = idle > max(_UNUSUAL * np.median(idle), _WORTH * np.median(walls))
    first = 0
    for place in range(len(rows) // 2):
        if long[place]:
            first = place + 1
        elif place > first:
            break
    return rows[first].begin, max(row.end for row in rows)
