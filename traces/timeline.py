"""What one device did and when, as columns: the work of all of its lanes together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hloscope.chips import ChipKind
from hloscope.traces.intervals import Intervals, union
from hloscope.traces.lanes import LaneKind, lane_kind
from hloscope.traces.recording import NONE, Codes, Lane, Recording, Section, TextColumn

__all__ = ["Device", "Work", "devices_of"]

_DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)")
_NUMBERED = re.compile(r"\(-?\d+\)$")
_END = "end: "  # a CPU's marker of an operation's end, no operation

_WANTED = (
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
)


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
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    lane: NDArray[np.int16]
    labels: TextColumn
    operations: TextColumn
    modules: TextColumn
    programs: NDArray[np.int64]
    correlations: NDArray[np.int64]
    runs: NDArray[np.int64]
    graphs: NDArray[np.int64]
    hints: TextColumn

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def durations(self) -> NDArray[np.int64]:
        """How long each took."""
        return self.ends - self.begins

    def intervals(self, chosen: NDArray[np.bool_] | None = None) -> Intervals:
        """The time in which any of them ran.

        Args:
            chosen: Which of them; all where left out.
        """
        if chosen is None:
            return union(self.begins, self.ends)
        return union(self.begins[chosen], self.ends[chosen])


@dataclass(frozen=True)
class Device:
    """One device of one host.

    Attributes:
        host: The host.
        kind: What it is.
        number: Its number on its host.
        lanes: Names of its lanes: streams, threads, or the core's operations.
        work: What it ran.
        flying: Transfers that a TPU has in flight beside it.
        modules: Executions of whole programs, where the recording has them.
        steps: Its own steps, where it has them.
        stats: What the recording says of it.
        not_understood: Lanes that nobody knows what they hold, with their events.
    """

    host: str
    kind: ChipKind
    number: int
    lanes: tuple[str, ...]
    work: Work
    flying: Work
    modules: Work
    steps: Work
    stats: dict[str, object] = field(default_factory=dict)
    not_understood: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """``GPU 0``; of a CPU ``CPU 0``."""
        return f"{self.kind.value.upper()} {self.number}"

    @cached_property
    def busy(self) -> Intervals:
        """The time in which it did anything: the union over its lanes, never a sum."""
        return self.work.intervals()


def devices_of(recording: Recording) -> tuple[Device, ...]:
    """The devices that did something, in the order of their kinds and numbers."""
    found = []
    for section in recording.sections:
        match = _DEVICE.match(section.name)
        if match is not None:
            kind = ChipKind.GPU if match[1] == "GPU" else ChipKind.TPU
            found.append(_device(recording.host, kind, int(match[2]), section))
        elif section.name.startswith("/host:CPU"):
            found += _cpus(recording.host, section)
    return tuple(device for device in found if len(device.work) or device.not_understood)


def _device(host: str, kind: ChipKind, number: int, section: Section) -> Device:
    by_kind: dict[LaneKind, list[Lane]] = {}
    for lane in section.lanes:
        by_kind.setdefault(lane_kind(section.name, lane), []).append(lane)
    mine = by_kind.get(LaneKind.STREAM, []) + by_kind.get(LaneKind.OPERATIONS, [])
    unknown = by_kind.get(LaneKind.UNKNOWN, [])
    return Device(
        host=host,
        kind=kind,
        number=number,
        lanes=tuple(lane.name for lane in mine),
        work=_work(mine),
        flying=_work(by_kind.get(LaneKind.ASYNC, [])),
        modules=_work(by_kind.get(LaneKind.MODULES, [])),
        steps=_work(by_kind.get(LaneKind.STEPS, [])),
        stats=dict(section.stats),
        not_understood=tuple((lane.name, len(lane)) for lane in unknown),
    )


def _cpus(host: str, section: Section) -> list[Device]:
    """The CPU's devices: operations of its threads, by the device that they ran for."""
    threads = [lane for lane in section.lanes if lane_kind(section.name, lane) is LaneKind.THREAD]
    if not threads:
        return []
    every = _work(threads)
    ordinals = np.concatenate([lane.stats.numbers("device_ordinal")[0] for lane in threads])
    real = (every.operations.codes != NONE) & ~_marked(every.labels)
    devices = []
    for number in np.unique(ordinals[real]).tolist():
        work = _only(every, real & (ordinals == number))
        none = _work([])
        names = tuple(lane.name for lane in threads)
        devices.append(Device(host, ChipKind.CPU, number, names, work, none, none, none))
    return devices


def _marked(labels: TextColumn) -> NDArray[np.bool_]:
    """Which events only mark the end of another one."""
    marks = np.asarray([word.startswith(_END) for word in labels.words], np.bool_)
    return marks[labels.codes]


def _only(work: Work, chosen: NDArray[np.bool_]) -> Work:
    def of(column: TextColumn) -> TextColumn:
        return TextColumn(column.codes[chosen], column.words)

    return Work(
        begins=work.begins[chosen],
        ends=work.ends[chosen],
        lane=work.lane[chosen],
        labels=of(work.labels),
        operations=of(work.operations),
        modules=of(work.modules),
        programs=work.programs[chosen],
        correlations=work.correlations[chosen],
        runs=work.runs[chosen],
        graphs=work.graphs[chosen],
        hints=of(work.hints),
    )


def _work(lanes: Sequence[Lane]) -> Work:
    for lane in lanes:
        lane.stats.fetch(_WANTED)

    def numbers(*names: str) -> NDArray[np.int64]:
        parts = []
        for lane in lanes:
            values = np.zeros(len(lane), np.int64)
            for name in names:
                found, known = lane.stats.numbers(name)
                values = np.where((values == 0) & known, found, values)
            parts.append(values)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def times(edges: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.concatenate(edges) if edges else np.empty(0, np.int64)

    sizes = [len(lane) for lane in lanes]
    operations = _joined([_operations(lane) for lane in lanes])
    modules = _joined([lane.stats.texts("hlo_module") for lane in lanes])
    plain = [_NUMBERED.sub("", word) for word in modules.words]
    return Work(
        begins=times([lane.begins for lane in lanes]),
        ends=times([lane.ends for lane in lanes]),
        lane=np.repeat(np.arange(len(lanes), dtype=np.int16), sizes),
        labels=_joined([lane.labels for lane in lanes]),
        operations=operations,
        modules=_merged(TextColumn(modules.codes, plain)),
        programs=numbers("program_id"),
        correlations=numbers("correlation_id"),
        runs=numbers("run_id"),
        graphs=numbers("cuda_graph_exec_id", "cuda_graph_id"),
        hints=_joined([_hints(lane) for lane in lanes]),
    )


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


def _joined(columns: Sequence[TextColumn]) -> TextColumn:
    """Columns one after another, each word kept once."""
    places: dict[str, int] = {}
    parts: list[Codes] = []
    for column in columns:
        mapped = [places.setdefault(word, len(places)) for word in column.words]
        # The last entry is what NONE, which is -1, points to.
        parts.append(np.asarray([*mapped, NONE], np.int32)[column.codes])
    codes = np.concatenate(parts) if parts else np.empty(0, np.int32)
    return TextColumn(codes, list(places))


def _merged(column: TextColumn) -> TextColumn:
    """The same with each word kept once."""
    return _joined([column])
