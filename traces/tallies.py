"""Time by category, kernel, family of kernels, operation, scope, source line, module or stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.ir import Instruction
from hloscope.traces.categories import Categories, Programs
from hloscope.traces.codes import distinct
from hloscope.traces.kernel_families import family_of
from hloscope.traces.naming import line_of, scope_of
from hloscope.traces.recording import NONE
from hloscope.traces.timeline import Device
from hloscope.traces.windows import Window

__all__ = ["BY", "UNKNOWN", "Tallied", "Tally", "clipped", "exact_sums", "tallies_of"]

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


def tallies_of(work: Tallied, by: str, window: Window) -> Mapping[str, Tally]:
    """Add time up by one of ``BY``.

    Args:
        work: Of one device.
        by: What to list it by.
        window: What of it counts.
    """
    words, codes = _WORDS[by](work)
    begins, ends = work.device.work.begins, work.device.work.ends
    times = clipped(begins, ends, work.own, window)
    inside = (begins >= window.begin) & (begins < max(window.end, window.begin + 1))
    places = codes.astype(np.int64) + 1  # the first is for what has no word
    sums = exact_sums(places, times, len(words) + 1)
    counts = np.bincount(places[inside], minlength=len(words) + 1).tolist()
    found: dict[str, Tally] = {}
    for word, time, number in zip((UNKNOWN, *words), sums, counts, strict=True):
        if number or time:
            found[word] = found.get(word, Tally(0, 0)) + Tally(time, number)
    return found


def clipped(
    begins: NDArray[np.int64], ends: NDArray[np.int64], own: NDArray[np.int64], window: Window
) -> NDArray[np.int64]:
    """Time of each event by itself that lies in a window: of one across its edge its share."""
    within = np.minimum(ends, window.end) - np.maximum(begins, window.begin)
    whole = ends - begins
    if np.all(within >= whole):
        return own
    return np.where(within >= whole, own, np.minimum(own, np.maximum(within, 0)))


def exact_sums(places: NDArray[np.int64], times: NDArray[np.int64], size: int) -> list[int]:
    """Whole sums of times by place: floating-point ones are exact only up to 2^53 ps."""
    high = np.bincount(places, (times >> 32).astype(np.float64), size)
    low = np.bincount(places, (times & 0xFFFFFFFF).astype(np.float64), size)
    return [(int(a) << 32) + int(b) for a, b in zip(high, low, strict=True)]


_Words = tuple[Sequence[str], NDArray[np.int32] | NDArray[np.int16]]


def _by_category(work: Tallied) -> _Words:
    return [str(kind) for kind in work.categories.kinds], work.categories.codes


def _by_kernel(work: Tallied) -> _Words:
    labels = work.device.work.labels
    return labels.words, labels.codes


def _by_family(work: Tallied) -> _Words:
    labels = work.device.work.labels
    return [family_of(word) for word in labels.words], labels.codes


def _by_op(work: Tallied) -> _Words:
    operations = work.device.work.operations
    return operations.words, operations.codes


def _by_module(work: Tallied) -> _Words:
    modules = work.device.work.modules
    return modules.words, modules.codes


def _by_stream(work: Tallied) -> _Words:
    return work.device.lanes, work.device.work.lane


def _by_instruction(said: Callable[[Instruction], str]) -> Callable[[Tallied], _Words]:
    def words(tallied: Tallied) -> _Words:
        work = tallied.device.work
        places, found = distinct((work.programs, work.operations.codes))
        known: dict[str, int] = {}
        codes = np.full(len(found), NONE, np.int32)
        for place, (program, operation) in enumerate(found):
            name = work.operations.words[operation] if operation != NONE else ""
            instruction = tallied.programs.instruction(program, name) if name else None
            text = said(instruction) if instruction is not None else ""
            if text:
                codes[place] = known.setdefault(text, len(known))
        return list(known), codes[places]

    return words


_WORDS: dict[str, Callable[[Tallied], _Words]] = {
    "category": _by_category,
    "kernel": _by_kernel,
    "family": _by_family,
    "op": _by_op,
    "scope": _by_instruction(scope_of),
    "source": _by_instruction(line_of),
    "module": _by_module,
    "stream": _by_stream,
}

BY = tuple(_WORDS)
"""What time can be listed by."""
