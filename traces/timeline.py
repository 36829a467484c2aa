"""What one device did and when, as columns: the work of all of its lanes together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hloscope.chips import ChipKind
from hloscope.traces.graphs import DETAILS, covered_graphs, is_whole_graph
from hloscope.traces.intervals import Intervals
from hloscope.traces.lanes import LaneKind, lane_kind
from hloscope.traces.placing import placed
from hloscope.traces.recording import NONE, Lane, Recording, Section, TextColumn
from hloscope.traces.work import WANTED, Work, work_of

__all__ = ["Device", "devices_of", "left_out"]

_DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)(?: (SparseCore \d+))?(?: (\[\d+\]))?$")
_SPARSE = "Sparse Core "  # how lines of a SparseCore begin that stand beside a TensorCore's
_MOST_DEVICES = 1 << 10  # of one host's CPU
_IMPOSSIBLE = ("/device:GPU:-", "/device:TPU:-")  # told by what losses there are
_END = "end: "  # a CPU's marker of an operation's end, no operation


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
        part: What of the chip it is, where that is not its main core: ``SparseCore 1``.
            It works beside that core and is a device of its own.
        notes: What was left out, in sentences.
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
    part: str = ""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``GPU 0``; of a CPU ``CPU 0``; of a part ``TPU 0 SparseCore 1``."""
        return f"{self.kind.value.upper()} {self.number} {self.part}".rstrip()

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
            part = " ".join(word for word in match.groups()[2:] if word)
            for name, lanes in _parts(part, section.lanes).items():
                mine = Section(section.name, lanes, section.stats)
                found.append(_device(recording.host, kind, int(match[2]), mine, name))
        elif section.name.startswith("/host:CPU"):
            found += _cpus(recording.host, section)
    return tuple(device for device in found if len(device.work) or device.not_understood)


def left_out(recording: Recording) -> tuple[str, ...]:
    """Planes of devices that count nowhere: counters of a chip, custom ones, unknown ones."""
    return tuple(
        section.name
        for section in recording.sections
        if section.name.startswith(("/device:", "#Chip"))
        and not section.name.startswith(_IMPOSSIBLE)
        and _DEVICE.match(section.name) is None
        and section.lanes
    )


def _parts(part: str, lanes: Sequence[Lane]) -> Mapping[str, tuple[Lane, ...]]:
    """A plane's lanes by what runs them: a SparseCore's may stand among a TensorCore's."""
    found: dict[str, tuple[Lane, ...]] = {}
    for lane in lanes:
        sparse = lane.name.startswith(_SPARSE) and "SparseCore" not in part
        name = f"{part} SparseCore".lstrip() if sparse else part
        found[name] = (*found.get(name, ()), lane)
    return found


def _device(host: str, kind: ChipKind, number: int, section: Section, part: str = "") -> Device:
    by_kind: dict[LaneKind, list[Lane]] = {}
    for lane in section.lanes:
        by_kind.setdefault(lane_kind(section.name, lane), []).append(lane)
    mine = by_kind.get(LaneKind.STREAM, []) + by_kind.get(LaneKind.OPERATIONS, [])
    unknown = by_kind.get(LaneKind.UNKNOWN, [])
    work, notes = _without_whole_graphs(work_of(mine), mine)
    executions = work_of(by_kind.get(LaneKind.MODULES, []))
    return Device(
        host=host,
        kind=kind,
        number=number,
        lanes=tuple(lane.name for lane in mine),
        work=placed(work, executions),
        flying=placed(work_of(by_kind.get(LaneKind.ASYNC, [])), executions),
        modules=executions,
        steps=work_of(by_kind.get(LaneKind.STEPS, [])),
        stats=dict(section.stats),
        not_understood=tuple((lane.name, len(lane)) for lane in unknown),
        part=part,
        notes=notes,
    )


def _without_whole_graphs(work: Work, lanes: Sequence[Lane]) -> tuple[Work, tuple[str, ...]]:
    """The same without CUDA graphs as a whole whose nodes are there, and what was left out."""
    if not work.graphs.any() and not any(map(is_whole_graph, work.labels.words)):
        return work, ()
    detailed = work.details.codes != NONE
    if detailed.all():
        return work, ()  # all of them are kernels
    for lane in lanes:
        lane.stats.fetch(DETAILS)
    for name in DETAILS:
        detailed = detailed | np.concatenate([lane.stats.present(name) for lane in lanes])
    covered, alone = covered_graphs(
        work.labels, work.begins, work.ends, work.graphs, work.correlations, detailed
    )
    notes = []
    left = int(np.count_nonzero(covered))
    if left:
        notes.append(
            f"{left:,} events of whole CUDA graphs are left out: the kernels that ran in them "
            "are recorded"
        )
    if alone:
        notes.append(
            f"{alone:,} CUDA graphs were recorded as a whole: what ran in them is not known, "
            "and all of it counts as compute"
        )
    return (work.only(~covered) if left else work), tuple(notes)


def _cpus(host: str, section: Section) -> list[Device]:
    """The CPU's devices: operations of its threads, by the device that they ran for."""
    threads = [lane for lane in section.lanes if lane_kind(section.name, lane) is LaneKind.THREAD]
    if not threads:
        return []
    for lane in threads:
        lane.stats.fetch(WANTED)
    ordinals = np.concatenate([lane.stats.numbers("device_ordinal")[0] for lane in threads])
    every = work_of(threads)
    real = (every.operations.codes != NONE) & ~_marked(every.labels)
    possible = (ordinals >= 0) & (ordinals < _MOST_DEVICES)
    devices = []
    if number := int(np.count_nonzero(real & ~possible)):
        seen, none = (("operations of impossible devices", number),), work_of([])
        devices.append(
            Device(host, ChipKind.CPU, 0, (), none, none, none, none, not_understood=seen)
        )
    for number in np.unique(ordinals[real & possible]).tolist():
        work = every.only(real & (ordinals == number))
        none = work_of([])
        names = tuple(lane.name for lane in threads)
        devices.append(Device(host, ChipKind.CPU, number, names, work, none, none, none))
    return devices


def _marked(labels: TextColumn) -> NDArray[np.bool_]:
    """Which events only mark the end of another one."""
    marks = np.asarray([word.startswith(_END) for word in labels.words], np.bool_)
    return marks[labels.codes]
