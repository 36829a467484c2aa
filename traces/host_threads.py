"""The thread that drives a run: it calls the step, and everything waits for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.host_kinds import (
    KINDS,
    HostKind,
    asks_for_results,
    is_python,
    kinds_of,
    program_called,
)
from hloscope.traces.intervals import outermost
from hloscope.traces.lanes import LaneKind, lane_kind
from hloscope.traces.recording import NONE, Codes, Lane, Recording, TextColumn
from hloscope.traces.steps import Annotations, annotations_of

__all__ = ["Calls", "HostThread", "calls_of", "driving_thread", "outer_events"]

Times = NDArray[np.int64]

_WORKER = re.compile(r"(tf_|py_xla_|Host Threads|pjrt|pool|.*[Tt]hread_?pool)")
_AWAIT = "::Await"
_END = "end: "  # marks the end of an operation, no event of its own
_ENTERING = re.compile(r"\$contextlib\.py:\d+ (__enter__|__exit__|helper)")
_NEXT = "$builtins next"


@dataclass(frozen=True)
class HostThread:
    """A thread of the host, its events in the order in which they begin, outer ones first.

    Attributes:
        name: The thread's.
        why: How it is known to drive the run.
        begins: When each event begins, in picoseconds from the recording's origin.
        ends: When each ends, later than that.
        labels: What each is called.
        kinds: What each is: its place in ``KINDS``, -1 where its name does not say.
        python: Which the Python tracer recorded.
        asking: Which ask for the results of a device.
        steps: The annotations of steps, where it has them; they are no events.
    """

    name: str
    why: str
    begins: Times
    ends: Times
    labels: TextColumn
    kinds: NDArray[np.int8]
    python: NDArray[np.bool_]
    asking: NDArray[np.bool_]
    steps: Annotations | None


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one program, one after another.

    Attributes:
        begins: Where each begins.
        ends: Where each returns.
    """

    begins: Times
    ends: Times

    def __len__(self) -> int:
        return len(self.begins)


def driving_thread(recording: Recording, program: str) -> HostThread | None:
    """The thread that drives a run; ``None`` where no thread is known to.

    It is the one with annotated steps, else the one that calls a program most often, else
    the one that launches most.

    Args:
        recording: Of one host.
        program: The module that devices ran longest, or empty.
    """
    annotated = annotations_of(recording)
    if annotated is not None:
        return _thread(annotated.lane, "its steps are annotated", annotated)
    lanes = [
        lane
        for section in recording.sections
        if section.name.startswith("/host:CPU")
        for lane in section.lanes
    ]
    mine = [np.asarray([program_called(w) == program for w in x.labels.words]) for x in lanes]
    found = _most(lanes, mine)
    if found is not None:
        return _thread(found, f"it calls {program}", None)
    own = [lane for lane in lanes if _WORKER.match(lane.name) is None]
    launch = KINDS.index(HostKind.LAUNCH)
    found = _most(own, [kinds_of(lane.labels.words) == launch for lane in own])
    return None if found is None else _thread(found, "it launches programs", None)


def _most(lanes: Sequence[Lane], words: Sequence[NDArray[np.bool_]]) -> Lane | None:
    """The lane with most events whose words are chosen."""
    counts = [
        int(np.count_nonzero(chosen[lane.labels.codes])) if chosen.any() else 0
        for lane, chosen in zip(lanes, words, strict=True)
    ]
    best = max(range(len(lanes)), key=counts.__getitem__, default=None)
    return None if best is None or not counts[best] else lanes[best]


def calls_of(thread: HostThread, program: str) -> Calls:
    """Calls of a program; a call within a call, as JAX records each twice, is the same."""
    words = thread.labels.words
    calling = np.asarray([program_called(word) is not None for word in words], np.bool_)
    mine = np.asarray([program_called(word) == program for word in words], np.bool_)
    if not mine.any():
        return Calls(np.empty(0, np.int64), np.empty(0, np.int64))
    outer = outer_events(thread, calling[thread.labels.codes])
    outer = outer[mine[thread.labels.codes[outer]]]
    return Calls(thread.begins[outer], thread.ends[outer])


def outer_events(thread: HostThread, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which of the chosen events are in none of the others, in order."""
    events = np.flatnonzero(chosen)
    outer: NDArray[np.int64] = events[outermost(thread.begins[events], thread.ends[events])]
    return outer


def _thread(lane: Lane, why: str, annotated: Annotations | None) -> HostThread:
    begins, ends = lane.begins, _awaited(lane)
    words = list(lane.labels.words)
    keep = begins < ends
    keep &= ~np.asarray([word.startswith(_END) for word in words], np.bool_)[lane.labels.codes]
    if annotated is not None:
        keep[annotated.events] = False
    order = np.flatnonzero(keep)
    order = order[np.lexsort((-ends[order], begins[order]))]
    begins, ends, codes = begins[order], ends[order], lane.labels.codes[order]
    kinds = kinds_of(words)[codes]
    kinds = np.where(_is_device_work(lane)[order] & (kinds < 0), _WORK, kinds).astype(np.int8)
    kinds[_not_of_a_pipeline(words, codes, begins, ends)] = NONE
    python = np.asarray([is_python(word) for word in words], np.bool_)
    asking = np.asarray([asks_for_results(word) for word in words], np.bool_)
    return HostThread(
        lane.name,
        why,
        begins,
        ends,
        TextColumn(codes, words),
        kinds,
        python[codes],
        asking[codes],
        annotated,
    )


_WORK = KINDS.index(HostKind.DEVICE_WORK)


def _is_device_work(lane: Lane) -> NDArray[np.bool_]:
    """Operations that a CPU's device ran on this thread, as it does with short ones."""
    if lane_kind("/host:CPU", lane) is not LaneKind.THREAD:
        return np.zeros(len(lane), np.bool_)
    return lane.stats.present("hlo_op")


def _awaited(lane: Lane) -> Times:
    """Ends of events, of a wait's first mark that of its last.

    A wait that no frame of Python surrounds is recorded as two short events which share an
    id: one as it begins, and one as the device is done.
    """
    waits = np.asarray([word.endswith(_AWAIT) for word in lane.labels.words], np.bool_)
    if not waits.any() or not {"_p", "_c"} <= lane.stats.names():
        return lane.ends
    lane.stats.fetch(("_p", "_c"))
    mine = waits[lane.labels.codes]
    started, starts = lane.stats.numbers("_p")
    ended, stops = lane.stats.numbers("_c")
    first, last = np.flatnonzero(mine & starts), np.flatnonzero(mine & stops)
    if not len(first) or not len(last):
        return lane.ends
    last = last[np.argsort(ended[last], kind="stable")]
    place = np.minimum(np.searchsorted(ended[last], started[first]), len(last) - 1)
    same = ended[last][place] == started[first]
    ends: Times = lane.ends.copy()
    ends[first[same]] = np.maximum(ends[first[same]], lane.ends[last[place[same]]])
    return ends


def _not_of_a_pipeline(words: Sequence[str], codes: Codes, begins: Times, ends: Times) -> Times:
    """Calls of ``next`` by which Python enters and leaves a ``with`` block."""
    if _NEXT not in words:
        return np.empty(0, np.int64)
    entering = np.asarray([_ENTERING.fullmatch(word) is not None for word in words], np.bool_)
    blocks = np.flatnonzero(entering[codes])
    calls = np.flatnonzero(codes == list(words).index(_NEXT))
    if not len(blocks):
        return np.empty(0, np.int64)
    reached = np.maximum.accumulate(ends[blocks])
    before = np.searchsorted(blocks, calls) - 1
    inside = (before >= 0) & (begins[calls] < reached[np.maximum(before, 0)])
    return calls[inside]
