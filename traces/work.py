"""Columns of what a device ran: one row an event, of all of its lanes together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.codes import distinct
from hloscope.traces.intervals import Intervals, union
from hloscope.traces.recording import NONE, Codes, Lane, TextColumn

__all__ = ["WANTED", "Group", "Groups", "Work", "work_of"]

_NUMBERED = re.compile(r"\(-?\d+\)$")
_OPERATIONS = "XLA Ops"

WANTED = (
    "hlo_op",
    "hlo_module",
    "program_id",
    "correlation_id",
    "group_id",
    "run_id",
    "device_ordinal",
    "device_duration_ps",
    "cuda_graph_id",
    "cuda_graph_exec_id",
    "kernel_details",
)
"""The stats that columns are made of."""


class Group(NamedTuple):
    """What some events have in common: their program, and places of words in ``Work``.

    Attributes:
        program: The program's id.
        operation: Place of the HLO instruction, or ``NONE``.
        label: Place of the label.
        hint: Place of the hint, or ``NONE``.
        module: Place of the module, or ``NONE``.
    """

    program: int
    operation: int
    label: int
    hint: int
    module: int


class Groups(NamedTuple):
    """Events by what they have in common: thousands of groups, whatever the events are.

    Attributes:
        places: The group of each event.
        rows: The groups.
    """

    places: Codes
    rows: Sequence[Group]


@dataclass(frozen=True)
class Work:
    """Kernels, copies and operations, one an event, in no particular order.

    Attributes:
        begins: When each begins, in picoseconds from the recording's origin.
        ends: When each ends.
        lane: Which of the device's lanes each ran on.
        labels: What each is called: a kernel's name, an operation's.
        operations: The HLO instruction that each is of.
        modules: The module that it stands in, without a number behind its name.
        programs: The program's id, 0 where none is said.
        correlations: What ties it to its launch, 0 where none is said.
        runs: Which execution of its program it belongs to, 0 where none is said.
        graphs: The CUDA graph that launched it, 0 for none.
        hints: What a TPU's profiler calls the kind of the instruction.
        details: How a GPU's kernel was launched, as its tracer writes it.
        texts: The whole text of the instruction, where a recording has it beside the label.
        impossible: Events whose correlation no tracer gives: it is taken as none.
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    lane: NDArray[np.int16] | NDArray[np.int32]
    labels: TextColumn
    operations: TextColumn
    modules: TextColumn
    programs: NDArray[np.int64]
    correlations: NDArray[np.int64]
    runs: NDArray[np.int64]
    graphs: NDArray[np.int64]
    hints: TextColumn
    details: TextColumn = field(default_factory=lambda: TextColumn(np.empty(0, np.int32), ()))
    texts: TextColumn | None = None
    impossible: int = 0

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def durations(self) -> NDArray[np.int64]:
        """How long each took."""
        return self.ends - self.begins

    @cached_property
    def groups(self) -> Groups:
        """Its events by program, operation, label, hint and module."""
        places, rows = distinct(
            (
                self.programs,
                self.operations.codes,
                self.labels.codes,
                self.hints.codes,
                self.modules.codes,
            )
        )
        return Groups(places, [Group(*row) for row in rows])

    def only(self, chosen: NDArray[np.bool_]) -> Work:
        """Some of them.

        Args:
            chosen: Which.
        """

        def of(column: TextColumn) -> TextColumn:
            return TextColumn(column.codes[chosen], column.words)

        return Work(
            begins=self.begins[chosen],
            ends=self.ends[chosen],
            lane=self.lane[chosen],
            labels=of(self.labels),
            operations=of(self.operations),
            modules=of(self.modules),
            programs=self.programs[chosen],
            correlations=self.correlations[chosen],
            runs=self.runs[chosen],
            graphs=self.graphs[chosen],
            hints=of(self.hints),
            details=of(self.details),
            texts=of(self.texts) if self.texts is not None else None,
            impossible=self.impossible,
        )

    def intervals(self, chosen: NDArray[np.bool_] | None = None) -> Intervals:
        """The time in which any of them ran.

        Args:
            chosen: Which of them; all where left out.
        """
        return union(self.begins, self.ends, chosen)


def work_of(lanes: Sequence[Lane]) -> Work:
    """The work of several lanes, one behind the other."""
    size = sum(map(len, lanes))
    # Short numbers, which sort faster, unless there are many lanes.
    lane_of: NDArray[np.int16] | NDArray[np.int32] = (
        np.empty(size, np.int16) if len(lanes) < 1 << 15 else np.empty(size, np.int32)
    )
    labels, operations, modules, hints, details = (_Texts(size) for _ in range(5))
    programs, correlations, runs, graphs = (_Numbers(size) for _ in range(4))
    behind = impossible = 0
    for number, lane in enumerate(lanes):
        here = slice(behind, behind + len(lane))
        behind = here.stop
        lane_of[here] = number
        labels.put(here, lane.labels)
        lane.stats.fetch(WANTED)
        operations.put(here, _operations(lane))
        said = lane.stats.texts("hlo_module")
        plain = [_NUMBERED.sub("", word) for word in said.words]
        modules.put(here, TextColumn(said.codes, plain))
        hints.put(here, _hints(lane))
        details.put(here, lane.stats.texts("kernel_details"))
        for column, names in (
            (programs, ("program_id",)),
            (correlations, ("correlation_id",)),
            (runs, ("run_id",)),
            (graphs, ("cuda_graph_exec_id", "cuda_graph_id")),
        ):
            column.put(here, _numbers(lane, names))
        # A negative one is none, whatever tracer wrote it.
        mine = correlations.values[here]
        if len(mine) and mine.min() < 0:
            impossible += int(np.count_nonzero(mine < 0))
            np.maximum(mine, 0, out=mine)
        # What the columns hold now need not be kept in the lanes as well.
        lane.stats.release()
    return Work(
        begins=_side_by_side([lane.begins for lane in lanes]),
        ends=_side_by_side([lane.ends for lane in lanes]),
        lane=lane_of,
        labels=labels.column(),
        operations=operations.column(),
        modules=modules.column(),
        programs=programs.values,
        correlations=correlations.values,
        runs=runs.values,
        graphs=graphs.values,
        hints=hints.column(),
        details=details.column(),
        texts=_texts(lanes),
        impossible=impossible,
    )


def _side_by_side(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Arrays one behind the other; without a copy where they lie so in one array already."""
    if not parts:
        return np.empty(0, np.int64)
    whole = parts[0].base
    if isinstance(whole, np.ndarray) and whole.ndim == 1 and whole.dtype == np.int64:
        first = (_address(parts[0]) - _address(whole)) // whole.itemsize
        found = whole[first : first + sum(map(len, parts))]
        places = np.cumsum([_address(found), *(part.nbytes for part in parts)])
        if len(found) and all(
            part.base is whole and part.flags.contiguous and _address(part) == place
            for part, place in zip(parts, places.tolist(), strict=False)
        ):
            return found
    return np.concatenate(parts)


def _address(array: NDArray[np.int64]) -> int:
    return int(array.__array_interface__["data"][0])


def _numbers(lane: Lane, names: Sequence[str]) -> NDArray[np.int64] | None:
    """The first of some stats that is said of each event and is not 0; ``None`` of none."""
    values: NDArray[np.int64] | None = None
    for name in names:
        if name not in lane.stats.names():
            continue
        found, known = lane.stats.numbers(name)
        if not known.all():
            if not known.any():
                continue
            found = np.where(known, found, 0)
        values = found if values is None else np.where(values == 0, found, values)
    return values


class _Numbers:
    """A column of numbers that is put together lane by lane; untouched memory takes no room."""

    def __init__(self, size: int) -> None:
        self.values = np.zeros(size, np.int64)

    def put(self, here: slice, values: NDArray[np.int64] | None) -> None:
        if values is not None:
            self.values[here] = values


class _Texts:
    """A column of words that is put together lane by lane, each word kept once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._codes: Codes | None = None
        self._places: dict[str, int] = {}

    def put(self, here: slice, column: TextColumn) -> None:
        if not column.words:
            return
        if self._codes is None:
            self._codes = np.full(self._size, NONE, np.int32)
        places = self._places
        mapped = [places.setdefault(word, len(places)) for word in column.words]
        if mapped == list(range(len(mapped))):
            self._codes[here] = column.codes
        else:
            # The last entry is what NONE, which is -1, points to.
            self._codes[here] = np.asarray([*mapped, NONE], np.int32)[column.codes]

    def column(self) -> TextColumn:
        if self._codes is None:  # one number for all: it takes no room
            return TextColumn(np.broadcast_to(np.int32(NONE), self._size), [])
        return TextColumn(self._codes, list(self._places))


def _texts(lanes: Sequence[Lane]) -> TextColumn | None:
    """``long_name``, which the JSON has of a TPU's operations; of threads it is another thing."""
    having = [lane for lane in lanes if lane.name.endswith(_OPERATIONS)]
    if not having or not any("long_name" in lane.stats.names() for lane in having):
        return None
    texts, behind = _Texts(sum(map(len, lanes))), 0
    for lane in lanes:
        here = slice(behind, behind + len(lane))
        behind = here.stop
        texts.put(here, lane.stats.texts("long_name"))
    return texts.column()


def _operations(lane: Lane) -> TextColumn:
    """The HLO instruction of each event: what it says, else what a TPU's label is."""
    said = lane.stats.texts("hlo_op")
    if said.words:
        # Nested ones are written with the outer first: ``while.3::fusion.7``.
        words = [word.rpartition("::")[2] for word in said.words]
        return _merged(TextColumn(said.codes, words))
    labels = lane.labels.words
    if lane.name == "XLA Ops" or any("hlo_category" in lane.about(n) for n in range(len(labels))):
        return _merged(TextColumn(lane.labels.codes, [_instruction(word) for word in labels]))
    return said


def _hints(lane: Lane) -> TextColumn:
    """The ``hlo_category`` of each event: its own, or that of all events of its label."""
    said = lane.stats.texts("hlo_category")
    if said.words:
        return said
    kinds = [lane.about(code).get("hlo_category") for code in range(len(lane.labels.words))]
    if not any(isinstance(kind, str) for kind in kinds):
        return said
    places: dict[str, int] = {}
    codes = [
        places.setdefault(kind, len(places)) if isinstance(kind, str) else NONE for kind in kinds
    ]
    return TextColumn(np.asarray(codes, np.int32)[lane.labels.codes], list(places))


def _instruction(text: str) -> str:
    """The name in ``%fusion.3 = f32[8] fusion(...)``."""
    return text.split(" = ", 1)[0].strip().lstrip("%")


def _merged(column: TextColumn) -> TextColumn:
    """The same with each word kept once."""
    if len(set(column.words)) == len(column.words):
        return column
    texts = _Texts(len(column.codes))
    texts.put(slice(None), column)
    return texts.column()
