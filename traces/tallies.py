"""Time by category, kernel, family of kernels, operation, scope, source line, module or stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hloscope.ir import Instruction
from hloscope.traces.categories import Categories, Programs
from hloscope.traces.codes import counts_by, whole_sums
from hloscope.traces.kernel_families import family_of
from hloscope.traces.naming import line_of, scope_of
from hloscope.traces.recording import NONE
from hloscope.traces.timeline import Device
from hloscope.traces.windows import Window

__all__ = ["BY", "UNKNOWN", "Tallied", "Tally", "clipped", "tallies_of"]

UNKNOWN = "unknown"
"""What has no word of the kind that is listed."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What one word stands for in a window.

    Attributes:
        time: Durations within the window added up, without what is nested in an event,
            in picoseconds. What runs side by side counts twice.
        number: Events that begin in it.
    """

    time: int
    number: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.time + other.time, self.number + other.number)


@dataclass(frozen=True)
class Tallied:
    """A device's work as it is added up.

    Attributes:
        device: The device.
        categories: What each event did.
        programs: The embedded modules.
        own: Time of each event by itself, in picoseconds.
    """

    device: Device
    categories: Categories
    programs: Programs
    own: NDArray[np.int64]
    known: dict[Window, _Counted] = field(default_factory=dict, repr=False, compare=False)

    def counted(self, window: Window) -> _Counted:
        """What of each event counts in a window; found once for all lists."""
        if window not in self.known:
            self.known[window] = _counted(self, window)
        return self.known[window]


@dataclass(frozen=True)
class _Counted:
    """What counts in a window.

    Attributes:
        times: Time of each event in it.
        inside: Which events begin in it; ``None`` where all do.
        by_group: Times and numbers of the groups of ``Work.groups``.
    """

    times: NDArray[np.int64]
    inside: NDArray[np.bool_] | None
    by_group: tuple[list[int], list[int]]


def _counted(work: Tallied, window: Window) -> _Counted:
    begins, ends = work.device.work.begins, work.device.work.ends
    times = clipped(begins, ends, work.own, window)
    inside = (begins >= window.begin) & (begins < max(window.end, window.begin + 1))
    chosen = None if inside.all() else inside
    groups = work.device.work.groups
    return _Counted(times, chosen, _added(groups.places, len(groups.rows), times, chosen))


def _added(
    places: NDArray[np.int32] | NDArray[np.int16],
    size: int,
    times: NDArray[np.int64],
    inside: NDArray[np.bool_] | None,
) -> tuple[list[int], list[int]]:
    """Times and numbers of what has the same place."""
    return whole_sums(places, times, size), counts_by(places, size, inside)


def tallies_of(work: Tallied, by: str, window: Window) -> Mapping[str, Tally]:
    """Add time up by one of ``BY``.

    Args:
        work: Of one device.
        by: What to list it by.
        window: What of it counts.
    """
    counted = work.counted(window)
    if by == "category":
        words: Sequence[str] = [str(kind) for kind in work.categories.kinds]
        sums = _added(work.categories.codes, len(words), counted.times, counted.inside)
        codes: Sequence[int] = range(len(words))
    elif by == "stream":
        words = work.device.lanes
        sums = _added(work.device.work.lane, len(words), counted.times, counted.inside)
        codes = range(len(words))
    else:
        sums = counted.by_group
        words, codes = _WORDS[by](work)
    found: dict[str, Tally] = {}
    for code, time, number in zip(codes, *sums, strict=True):
        if number or time:
            word = words[code] if code != NONE else UNKNOWN
            found[word] = found.get(word, Tally(0, 0)) + Tally(time, number)
    return found


def clipped(
    begins: NDArray[np.int64], ends: NDArray[np.int64], own: NDArray[np.int64], window: Window
) -> NDArray[np.int64]:
    """Time of each event by itself that lies in a window: of one across its edge its share."""
    if not len(own) or (window.begin <= int(begins.min()) and int(ends.max()) <= window.end):
        return own
    within = np.minimum(ends, window.end) - np.maximum(begins, window.begin)
    whole = ends - begins
    return np.where(within >= whole, own, np.minimum(own, np.maximum(within, 0)))


_Words = tuple[Sequence[str], Sequence[int]]


def _by_kernel(work: Tallied) -> _Words:
    found = work.device.work
    return found.labels.words, [group.label for group in found.groups.rows]


def _by_family(work: Tallied) -> _Words:
    found = work.device.work
    families = [family_of(word) for word in found.labels.words]
    return families, [group.label for group in found.groups.rows]


def _by_op(work: Tallied) -> _Words:
    found = work.device.work
    return found.operations.words, [group.operation for group in found.groups.rows]


def _by_module(work: Tallied) -> _Words:
    found = work.device.work
    return found.modules.words, [group.module for group in found.groups.rows]


def _by_instruction(said: Callable[[Instruction], str]) -> Callable[[Tallied], _Words]:
    def words(tallied: Tallied) -> _Words:
        work = tallied.device.work
        known: dict[str, int] = {}
        codes = []
        for group in work.groups.rows:
            name = work.operations.words[group.operation] if group.operation != NONE else ""
            instruction = tallied.programs.instruction(group.program, name) if name else None
            text = said(instruction) if instruction is not None else ""
            codes.append(known.setdefault(text, len(known)) if text else NONE)
        return list(known), codes

    return words


_WORDS: dict[str, Callable[[Tallied], _Words]] = {
    "kernel": _by_kernel,
    "family": _by_family,
    "op": _by_op,
    "scope": _by_instruction(scope_of),
    "source": _by_instruction(line_of),
    "module": _by_module,
}

BY = ("category", "kernel", "family", "op", "scope", "source", "module", "stream")
"""What time can be listed by."""
