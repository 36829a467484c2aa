"""What is kept of a recording once it was looked at: small, whatever its size was.

One host after the other is read, summed up, and let go, or each in a process of its own;
so memory does not grow with the number of hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from hloscope.chips import ChipKind
from hloscope.errors import UsageError
from hloscope.traces.arrivals import HostArrivals, Taking, arrivals_of
from hloscope.traces.categories import Categories, Programs, categorize
from hloscope.traces.compared import Compared, compared_of
from hloscope.traces.exchanging import Exchanging, exchanging_of
from hloscope.traces.exposure import Parts, parts_of
from hloscope.traces.host_budget import HostBudget
from hloscope.traces.host_pace import DevicePace
from hloscope.traces.host_side import Beside, host_side
from hloscope.traces.kernel_details import KernelDetails, kernel_details_of
from hloscope.traces.kernel_names import Category
from hloscope.traces.launches import Launches, launches_of
from hloscope.traces.losses import losses_of
from hloscope.traces.operations import Operations, kept_programs, operations_of
from hloscope.traces.recording import Recording
from hloscope.traces.self_time import self_times
from hloscope.traces.steps import Steps, annotations_of, steps_of
from hloscope.traces.tallies import BY, Tallied, Tally, tallies_of
from hloscope.traces.timeline import Device, devices_of, left_out
from hloscope.traces.timeline_bins import Bins, bins_of
from hloscope.traces.windows import WindowChoice, Windows, windows_of

__all__ = ["DeviceSummary", "HostSummary", "Trace", "summarize"]

_GAPS = 256  # of the longest ones, which are kept


@dataclass(frozen=True)
class DeviceSummary:
    """One device of one host; times are in picoseconds.

    Attributes:
        host: The host.
        name: ``GPU 0``.
        kind: What it is.
        number: Its number on its host.
        about: What the recording says of it: its name, its clock...
        events: Kernels, copies and operations in the whole recording.
        windows: Which times are looked at.
        whole: What the whole window was spent on.
        steady: The same of steady state, where that is known and another one.
        parts: The same of the chosen window.
        steps: Its steps.
        tallies: Time in the chosen window by each of ``BY``.
        joined: Time in it of what the embedded HLO has an instruction for.
        unplaced: Time in it that no rule could put into a category.
        bins: The chosen window in columns, where a picture was asked for.
        compared: Its time as it is compared with another run's, where that was asked for.
        kernels: How its kernels were launched, where the recording says.
        part: What of the chip it is, where that is not its main core.
        operations: What ran in it by HLO instruction.
        pace: What it waited for in it, and how far its host was ahead.
    """

    host: str
    name: str
    kind: ChipKind
    number: int
    about: Mapping[str, object]
    events: int
    windows: Windows
    whole: Parts
    steady: Parts | None
    parts: Parts
    steps: Steps
    tallies: Mapping[str, Mapping[str, Tally]]
    joined: int
    unplaced: int
    bins: Bins | None = None
    compared: Compared | None = None
    kernels: KernelDetails = field(default_factory=lambda: KernelDetails({}, {}))
    part: str = ""
    operations: Operations = field(default_factory=Operations)
    pace: DevicePace | None = None

    @property
    def time(self) -> int:
        """Durations in the chosen window added up."""
        return sum(tally.time for tally in self.tallies["category"].values())


@dataclass(frozen=True)
class HostSummary:
    """What one host recorded.

    Attributes:
        host: Its name.
        place: The file.
        devices: Those that did something.
        lanes: Every line by its plane and name: what was seen where nothing was understood.
        notes: What is missing or was left out, in sentences.
        annotations: Number, beginning and end of each step that the host annotated, where a
            picture was asked for.
        cut: Where its file is cut off, in a sentence; empty of a whole one.
        arrivals: Who of its devices waits for whom.
        programs: Serialized HLO modules by program id: those that took most time.
        budget: What its thread that drives the devices did; ``None`` where none is known to.
    """

    host: str
    place: str
    devices: tuple[DeviceSummary, ...]
    lanes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    annotations: tuple[tuple[int, int, int], ...] = ()
    cut: str = ""
    arrivals: HostArrivals = field(default_factory=HostArrivals)
    programs: Mapping[int, bytes] = field(default_factory=dict)
    budget: HostBudget | None = None


@dataclass(frozen=True)
class Trace:
    """A run as it was recorded.

    Attributes:
        name: Of the run.
        hosts: One for each file.
        notes: What holds for the run as a whole.
    """

    name: str
    hosts: tuple[HostSummary, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def devices(self) -> tuple[DeviceSummary, ...]:
        """Those of all hosts."""
        return tuple(device for host in self.hosts for device in host.devices)

    def only(self, wanted: str) -> Trace:
        """The same of the devices of a name, ``GPU 3`` or ``3``, on every host.

        Raises:
            UsageError: No device has that name.
        """
        names = [device.name for device in self.devices]
        asked = wanted.strip().lower()
        chosen = {name for name in names if asked in (name.lower(), name.partition(" ")[2])}
        if not chosen:
            raise UsageError(
                f"no device has the name {wanted!r}",
                place=f"--device {wanted}",
                hint=f"The devices are: {', '.join(dict.fromkeys(names))}.",
            )
        hosts = (
            replace(host, devices=tuple(d for d in host.devices if d.name in chosen))
            for host in self.hosts
        )
        return replace(self, hosts=tuple(host for host in hosts if host.devices))


def summarize(
    recording: Recording,
    choice: WindowChoice | None = None,
    columns: int = 0,
    compared: bool = False,
) -> HostSummary:
    """Look at what one host recorded.

    Args:
        recording: All of it.
        choice: Which window is looked at.
        columns: Into how many columns the window is cut for a picture; 0 for none.
        compared: Whether it is compared with another run.
    """
    programs = Programs(recording)
    notes = dict.fromkeys(recording.notes)
    devices: list[DeviceSummary] = []
    taking: list[Taking] = []
    beside: list[Beside] = []
    everyone = devices_of(recording)
    launches = launches_of(recording)
    notes.update(dict.fromkeys(losses_of(recording, everyone)))
    for device in everyone:
        for name, number in device.not_understood:
            text = f"{device.name}: the line {name!r} is not understood, {number:,} events"
            notes[text] = None
        for note in device.notes:
            notes[f"{device.name}: {note}"] = None
        if len(device.work):
            found, exchanging = _summary(
                recording, device, programs, choice or WindowChoice(), columns, compared, launches
            )
            devices.append(found)
            beside.append(Beside(device, found.steps, found.windows.chosen, found.parts.gaps))
            if not device.part:
                taking.append(Taking(found.name, found.number, exchanging, found.parts.window))
    budget, paces = host_side(recording, beside, launches)
    devices = [
        replace(_in_short(each), pace=pace) for each, pace in zip(devices, paces, strict=True)
    ]
    for name in left_out(recording):
        notes[f"{name} counts nowhere: it is no core that runs a program's operations"] = None
    for summary in devices:
        for what, number in summary.kernels.impossible.items():
            text = f"{summary.name}: {number:,} events have impossible {what}: taken as unknown"
            notes[text] = None
        if summary.windows.missing:
            notes[f"{summary.name}: {summary.windows.missing}"] = None
    for program, why in programs.failed.items():
        notes[f"the embedded program {program} cannot be read: {why}"] = None
    lanes = tuple(f"{s.name}: {lane.name}" for s in recording.sections for lane in s.lanes)
    kept = kept_programs([found.operations for found in devices], programs)
    return HostSummary(
        recording.host,
        recording.place,
        tuple(devices),
        tuple(dict.fromkeys(lanes)),
        tuple(notes),
        _annotated(recording) if columns else (),
        recording.cut,
        arrivals_of(taking),
        kept,
        budget,
    )


def _annotated(recording: Recording) -> tuple[tuple[int, int, int], ...]:
    found = annotations_of(recording)
    if found is None:
        return ()
    return tuple(zip(found.numbers, found.begins.tolist(), found.ends.tolist(), strict=True))


def _in_short(summary: DeviceSummary) -> DeviceSummary:
    """The same with its longest gaps alone: there may be as many as there are events."""

    def short(parts: Parts) -> Parts:
        return replace(parts, gaps=parts.gaps.longest(_GAPS))

    whole = short(summary.whole)
    parts = whole if summary.parts is summary.whole else short(summary.parts)
    steady = summary.steady
    if steady is not None:
        steady = parts if steady is summary.parts else short(steady)
    return replace(summary, whole=whole, steady=steady, parts=parts)


def _summary(
    recording: Recording,
    device: Device,
    programs: Programs,
    choice: WindowChoice,
    columns: int,
    compared: bool,
    launches: Launches,
) -> tuple[DeviceSummary, Exchanging]:
    categories = categorize(device, programs)
    steps = steps_of(recording, device, launches)
    windows = windows_of(steps, device.busy, choice)
    flying = categorize(replace(device, work=device.flying), programs)
    exchanging = exchanging_of(device, categories, flying, programs)
    split = partial(parts_of, device, categories, flying=flying, exchanging=exchanging)
    whole = split(windows.whole)
    steady = split(windows.steady) if windows.steady else None
    if windows.chosen is windows.whole:
        parts = whole
    elif windows.chosen is windows.steady and steady is not None:
        parts = steady
    else:
        parts = split(windows.chosen)
    # One list of exchanges is enough: that of the chosen window.
    whole = whole if whole is parts else replace(whole, collectives=())
    steady = steady if steady is parts or steady is None else replace(steady, collectives=())
    work = device.work
    tallied = Tallied(device, categories, programs, self_times(work.begins, work.ends, work.lane))
    tallies = {by: tallies_of(tallied, by, windows.chosen) for by in BY}
    unplaced = tallies["category"].get(str(Category.OTHER), Tally(0, 0)).time
    summary = DeviceSummary(
        host=recording.host,
        name=device.name,
        kind=device.kind,
        number=device.number,
        about=dict(device.stats),
        events=len(work),
        windows=windows,
        whole=whole,
        steady=steady,
        parts=parts,
        steps=steps,
        tallies=tallies,
        joined=_joined(tallied, categories, windows),
        unplaced=unplaced,
        bins=bins_of(device, categories, windows.chosen, columns, flying, exchanging)
        if columns
        else None,
        compared=compared_of(tallied, steps, windows.chosen) if compared else None,
        kernels=kernel_details_of(device),
        part=device.part,
        operations=operations_of(recording, device, programs, tallied.own, windows.chosen),
    )
    return summary, exchanging


def _joined(tallied: Tallied, categories: Categories, windows: Windows) -> int:
    return int(np.sum(tallied.counted(windows.chosen).times, where=categories.joined))
