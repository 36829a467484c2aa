"""How long each HLO instruction took in a window, and how often its kernels ran.

What is kept is small: a row for each instruction, in it one for each kernel of it, and of
the embedded programs the ones that most of the time went into.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.categories import Programs
from hloscope.traces.codes import distinct, whole_sums
from hloscope.traces.intervals import union
from hloscope.traces.kernel_instructions import Link, link_all
from hloscope.traces.profiler_counts import ProfilerCounts, profiler_counts
from hloscope.traces.recording import NONE, Recording
from hloscope.traces.timeline import Device
from hloscope.traces.windows import Window
from hloscope.traces.work import Group, Work

if TYPE_CHECKING:
    from hloscope.traces.summary import HostSummary

__all__ = [
    "LAUNCH_GAP",
    "KernelTally",
    "OperationTally",
    "Operations",
    "kept_programs",
    "operations_of",
    "with_shared_programs",
]

LAUNCH_GAP = 50_000_000
"""Picoseconds, 50 us: the longest gap that launching alone explains, at a few us a kernel."""

_MOST_TIME = 0.95  # of the joined time is what the kept programs are of, if few do
_MOST_PROGRAMS = 32
_SMALL = 1 << 20  # bytes of a module that is kept whatever its time
_FARTHEST = 1 << 62
_LABEL = 200  # characters of a kernel's name; templates of C++ have thousands


@dataclass(frozen=True, slots=True)
class KernelTally:
    """One kernel of one instruction in a window.

    Attributes:
        label: Its name, its first 200 characters.
        number: How often it ran.
        time: Its durations added up, in picoseconds.
        gaps: Time that the device then was idle, from its end to the next beginning, of gaps
            up to ``LAUNCH_GAP``: in longer ones more than the next launch is waited for.
    """

    label: str
    number: int
    time: int
    gaps: int


@dataclass(frozen=True, slots=True)
class OperationTally:
    """One instruction, or what is known of no instruction, in a window.

    Attributes:
        program: The program's id, 0 where none is known.
        module: The program's name.
        name: The instruction's; empty where it is not known.
        link: How the instruction is known.
        time: Time of its kernels by themselves, in picoseconds; without what nests in them.
        elapsed: Time in which any of its kernels ran: their union.
        kernels: Its kernels, those that took longest first.
        flops: FLOPs of all that ran, as the profiler itself counts them; ``None`` where it
            does not.
        moved_bytes: Bytes that they accessed, the same way.
    """

    program: int
    module: str
    name: str
    link: Link
    time: int
    elapsed: int
    kernels: tuple[KernelTally, ...]
    flops: int | None = None
    moved_bytes: int | None = None

    @property
    def number(self) -> int:
        """Kernels of it that ran."""
        return sum(kernel.number for kernel in self.kernels)

    @property
    def executions(self) -> int:
        """How often the instruction ran at most, as its kernels tell.

        One execution runs each of its kernels once or several times: executions divide
        how often each ran.
        """
        return math.gcd(*(kernel.number for kernel in self.kernels))


@dataclass(frozen=True, slots=True)
class Operations:
    """What one device ran in a window, by instruction.

    Only what lies within the window as a whole counts: of a part of a kernel nobody can
    say how much of its work it did.

    Attributes:
        rows: Those that took longest first.
        runs: Executions of each program that the recording tells apart, by its id.
    """

    rows: tuple[OperationTally, ...] = ()
    runs: Mapping[int, int] = field(default_factory=dict)


def operations_of(
    recording: Recording,
    device: Device,
    programs: Programs,
    own: NDArray[np.int64],
    window: Window,
) -> Operations:
    """Add up what a device ran by instruction.

    Args:
        recording: What it is from.
        device: The device.
        programs: The embedded modules.
        own: Time of each event by itself.
        window: What counts.
    """
    work = device.work
    inside = (work.begins >= window.begin) & (work.ends <= window.end)
    if not inside.any():
        return Operations()
    chosen = _Chosen(device, own, None if inside.all() else np.flatnonzero(inside))
    groups, found = chosen.groups()
    modules: dict[int, str] = {}
    labels = [work.labels.words[group.label] for group, _ in found]
    links = link_all(
        [
            (group.program, _word(work.operations.words, group.operation), label, graph)
            for (group, graph), label in zip(found, labels, strict=True)
        ],
        programs,
    )
    keys: dict[_Key, int] = {}
    rows_of_groups = []
    for link, (group, _) in zip(links, found, strict=True):
        module = _word(work.modules.words, group.module)
        # Without its number a program is told by its name.
        key = _Key(*link, "" if link[0] else module)
        rows_of_groups.append(keys.setdefault(key, len(keys)))
        modules.setdefault(rows_of_groups[-1], module)
    targets = np.asarray(rows_of_groups, np.int32)
    places = groups.astype(np.int64)
    lengths = whole_sums(places, chosen.durations, len(found))
    alone = lengths if chosen.is_flat else whole_sums(places, chosen.own, len(found))
    kernels = _kernels(chosen, places, lengths, labels, targets, window)
    times, sums = [0] * len(keys), [0] * len(keys)
    for row, length, time in zip(targets.tolist(), lengths, alone, strict=True):
        sums[row] += length
        times[row] += time
    rows = targets[groups]
    elapsed = _elapsed(chosen, rows, sums, window)
    counts = profiler_counts(recording, device)
    stated = _stated(chosen.only(counts), rows, len(keys)) if counts is not None else {}
    tallies = [
        OperationTally(
            program=key.program,
            module=modules[row],
            name=key.name,
            link=key.link,
            time=times[row],
            elapsed=elapsed[row],
            kernels=tuple(sorted(kernels[row], key=lambda kernel: -kernel.time)),
            flops=stated.get(row, (None, None))[0],
            moved_bytes=stated.get(row, (None, None))[1],
        )
        for key, row in keys.items()
        if row in kernels  # others ran outside of the window
    ]
    return Operations(
        tuple(sorted(tallies, key=lambda row: (-row.time, row.name))), _runs(work, inside)
    )


class _Chosen:
    """The columns of the events that count."""

    def __init__(
        self, device: Device, own: NDArray[np.int64], events: NDArray[np.int64] | None
    ) -> None:
        self.device = device
        self.events = events
        self.own = own if events is None else own[events]
        self.begins = self.of(device.work.begins)
        self.ends = self.of(device.work.ends)
        self.durations = self.ends - self.begins
        self.lane = device.work.lane if events is None else device.work.lane[events]

    def of(self, column: NDArray[np.int64]) -> NDArray[np.int64]:
        return column if self.events is None else column[self.events]

    @cached_property
    def is_flat(self) -> bool:
        """Whether nothing nests or overlaps on its lane, as on a GPU's streams."""
        return bool(np.array_equal(self.own, self.durations))

    def only(self, counts: ProfilerCounts) -> ProfilerCounts:
        return counts if self.events is None else counts.only(self.events)

    def groups(self) -> tuple[NDArray[np.int32], list[tuple[Group, int]]]:
        """Each event's place among the kinds of events, and these with their graphs."""
        work = self.device.work
        places, rows = work.groups
        mine = places if self.events is None else places[self.events]
        if not work.graphs.any():
            return mine, [(group, 0) for group in rows]
        graphs = self.of(work.graphs)
        both, pairs = distinct((mine, graphs))
        return both, [(rows[place], graph) for place, graph in pairs]


class _Key(NamedTuple):
    """What the events of one row have in common."""

    program: int
    name: str
    link: Link
    module: str


def _word(words: Sequence[str], code: int) -> str:
    return words[code] if code != NONE else ""


def _kernels(
    chosen: _Chosen,
    groups: NDArray[np.int64],
    lengths: Sequence[int],
    labels: Sequence[str],
    targets: NDArray[np.int32],
    window: Window,
) -> Mapping[int, list[KernelTally]]:
    """The kernels of each row."""
    numbers = np.bincount(groups, minlength=len(labels)).tolist()
    gaps = _gaps(chosen, groups, len(labels), window)
    merged: dict[int, dict[str, KernelTally]] = defaultdict(dict)
    for row, label, number, time, gap in zip(
        targets.tolist(), labels, numbers, lengths, gaps, strict=True
    ):
        if not number:
            continue
        # One kernel that several graphs launch is one.
        before = merged[row].get(label, KernelTally("", 0, 0, 0))
        merged[row][label] = KernelTally(
            label[:_LABEL], before.number + number, before.time + time, before.gaps + gap
        )
    return {row: list(found.values()) for row, found in merged.items()}


def _gaps(chosen: _Chosen, groups: NDArray[np.int64], size: int, window: Window) -> list[int]:
    """Idle time right behind the events of each group: one of those that end there has it."""
    idle = chosen.device.busy.gaps(window.begin, window.end)
    if not len(idle):
        return [0] * size
    at = np.minimum(np.searchsorted(idle.begins, chosen.ends), len(idle) - 1)
    last = np.flatnonzero(idle.begins[at] == chosen.ends)
    owner = np.full(len(idle), -1, np.int64)
    owner[at[last]] = groups[last]
    lengths = idle.ends - idle.begins
    owned = (owner >= 0) & (lengths <= LAUNCH_GAP)
    return whole_sums(owner[owned], lengths[owned], size)


def _elapsed(
    chosen: _Chosen, rows: NDArray[np.int32], sums: Sequence[int], window: Window
) -> list[int]:
    """The union of each row's events; the sum where none overlap, which is quicker."""
    found = list(sums)
    if chosen.is_flat and sum(sums) == chosen.device.busy.within(window.begin, window.end).total:
        return found
    overlapping = np.zeros(len(sums), np.bool_)
    if not chosen.is_flat:
        # What nests or overlaps on one lane lost some of its time to what lies in it.
        overlapping[rows[chosen.durations != chosen.own]] = True
    lane = np.full(len(sums), -1, np.int32)
    lane[rows] = chosen.lane
    overlapping[rows[lane[rows] != chosen.lane]] = True
    some = np.flatnonzero(overlapping[rows])
    if not len(some):
        return found
    mine, begins, ends = rows[some].astype(np.int64), chosen.begins[some], chosen.ends[some]
    length = window.length + 1
    if length * len(sums) < _FARTHEST:
        # Each row in a stretch of time of its own: one union is that of all.
        shift = mine * length - window.begin
        union_of_all = union(begins + shift, ends + shift)
        of_row = whole_sums(
            union_of_all.begins // length, union_of_all.ends - union_of_all.begins, len(sums)
        )
        for row in np.flatnonzero(overlapping).tolist():
            found[row] = of_row[row]
        return found
    for row in np.flatnonzero(overlapping).tolist():
        found[row] = union(begins[mine == row], ends[mine == row]).total
    return found


def _stated(
    counts: ProfilerCounts, rows: NDArray[np.int32], size: int
) -> Mapping[int, tuple[int | None, int | None]]:
    """The profiler's own FLOPs and bytes of each row; nothing where one event lacks them."""
    places = rows.astype(np.int64)

    def sums(values: NDArray[np.int64], known: NDArray[np.bool_]) -> Sequence[int | None]:
        missing = np.bincount(places[~known], minlength=size)
        totals = whole_sums(places, values, size)
        return [None if lacking else total for total, lacking in zip(totals, missing, strict=True)]

    flops = sums(counts.flops, counts.flops_known)
    moved = sums(counts.moved, counts.moved_known)
    return dict(enumerate(zip(flops, moved, strict=True)))


def _runs(work: Work, inside: NDArray[np.bool_]) -> Mapping[int, int]:
    """Executions of each program, where events say which one they belong to.

    Of a program that a window cuts an execution of nobody can say how many there were.
    """
    known = np.flatnonzero(work.runs)
    if not len(known):
        return {}
    columns = (work.programs[known], work.runs[known], inside[known].astype(np.int64))
    places: dict[tuple[int, int], set[int]] = defaultdict(set)
    for program, run, within in distinct(columns)[1]:
        places[program, run].add(within)
    cut = {program for (program, _), each in places.items() if len(each) > 1}
    return Counter(
        program for (program, _), each in places.items() if each == {1} and program not in cut
    )


def kept_programs(operations: Sequence[Operations], programs: Programs) -> Mapping[int, bytes]:
    """The serialized modules that most of the time went into.

    As many as make up 95% of the time of what is embedded, of the others those that are
    small, and 32 at most.

    Args:
        operations: Of each device of a host.
        programs: The embedded modules.
    """
    times: dict[int, int] = defaultdict(int)
    for device in operations:
        for row in device.rows:
            times[row.program] += row.time
    contents = {program: programs.content(program) for program in times}
    total = sum(times[program] for program, content in contents.items() if content is not None)
    kept: dict[int, bytes] = {}
    covered = 0
    for program in sorted(times, key=lambda each: -times[each]):
        content = contents[program]
        if len(kept) == _MOST_PROGRAMS:
            break
        if content is not None and (covered < _MOST_TIME * total or len(content) <= _SMALL):
            kept[program] = content
            covered += times[program]
    return kept


def with_shared_programs(host: HostSummary, known: dict[bytes, bytes]) -> HostSummary:
    """A host with its programs in the one copy that all hosts which ran them have.

    Args:
        host: What was kept of it.
        known: The programs so far; those that are new are added.
    """
    shared = {number: known.setdefault(each, each) for number, each in host.programs.items()}
    return replace(host, programs=shared)
