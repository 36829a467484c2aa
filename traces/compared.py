"""One device's time as it can be laid beside that of another run.

Names of instructions shift with every compile. Where the HLO is embedded an operation is
known by what it is for: its module, its name in the program, what it does, and its line.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.codes import distinct, whole_sums
from hloscope.traces.kernel_families import family_of
from hloscope.traces.kernel_names import Category
from hloscope.traces.recording import NONE
from hloscope.traces.steps import Step, Steps
from hloscope.traces.tallies import Tallied, clipped
from hloscope.traces.windows import Window

__all__ = [
    "Compared",
    "Measured",
    "Operation",
    "Spread",
    "compared_of",
    "counted",
    "spread_of",
    "step_times",
]

_FEWEST = 3
"""Values below which nothing can be said of how much they vary."""

_MANY = 10
"""Values from which a tenth at either end is left out: one slow step is no spread."""

_MOST_CELLS = 20_000_000  # steps times words, beyond which no spread is kept

_PROGRAM = re.compile(r"^p?jit\([^()]*\)/")

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Spread:
    """How much values of single steps vary.

    Attributes:
        usual: Their median.
        low: The least; of ten values and more, a tenth of them lies below.
        high: The most; of ten values and more, a tenth of them lies above.
    """

    usual: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Between the low and the high end."""
        return self.high - self.low

    def apart(self, other: Spread) -> bool:
        """Whether the medians differ by more than either varies."""
        return abs(self.usual - other.usual) > max(self.width, other.width)


@dataclass(frozen=True, slots=True)
class Operation:
    """What an operation is known by in another run.

    Attributes:
        module: The module that it stands in; empty for the one that took most of the time,
            so that a step is found again under another name.
        name: Its name in the program without the program's own, ``mlp/dot_general``; without
            an embedded HLO the instruction's own, and without an instruction the kernel's
            family.
        kind: What it does.
        source: File and line, the folder left out; empty where it is not known.
        embedded: Whether the name is the program's.
    """

    module: str
    name: str
    kind: Category
    source: str
    embedded: bool

    @property
    def loose(self) -> Operation:
        """The same without its line, or its number, which shift when a program changes."""
        name = self.name if self.embedded else family_of(self.name)
        return Operation(self.module, name, self.kind, "", self.embedded)


@dataclass(frozen=True, slots=True)
class Measured:
    """The time of one word in a window, in picoseconds.

    Attributes:
        time: Durations added up, without what is nested.
        spread: Of the steps; ``None`` where that is not known.
        example: An instruction or a kernel that it stands for.
    """

    time: int
    spread: Spread | None
    example: str


@dataclass(frozen=True)
class Compared:
    """A device's time by each of what two runs are compared by."""

    categories: Mapping[str, Measured]
    families: Mapping[str, Measured]
    operations: Mapping[Operation, Measured]


def spread_of(values: Sequence[float] | NDArray[np.float64]) -> Spread | None:
    """How much values vary; ``None`` of fewer than three."""
    if len(values) < _FEWEST:
        return None
    ends = (10, 90) if len(values) >= _MANY else (0, 100)
    low, high = np.percentile(np.asarray(values, np.float64), ends).tolist()
    return Spread(float(median(values)), low, high)


def step_times(steps: Steps, window: Window) -> list[int]:
    """From the end of the step before to the end of each, which holds what it waited for.

    The first step of a window has none before it and is left out, unless it is the only
    one: then it is what it took from its beginning.
    """
    rows = counted(steps, window)
    if len(rows) < 2:
        return [row.wall for row in rows]
    return [max(row.end - last.end, 0) for last, row in pairwise(rows)]


def counted(steps: Steps, window: Window) -> list[Step]:
    """The steps in a window."""
    return list(window.steps(steps))


def compared_of(work: Tallied, steps: Steps, window: Window) -> Compared:
    """A device's time as it is compared with another run's.

    Args:
        work: Of the device.
        steps: Of the device.
        window: What counts.
    """
    by_step = _BySteps(work, steps, window)
    kinds = [str(kind) for kind in work.categories.kinds]
    labels = work.device.work.labels
    families = [family_of(word) for word in labels.words]
    operations, examples, codes = _operations(work)
    return Compared(
        by_step.measured(kinds, kinds, work.categories.codes),
        by_step.measured(families, labels.words, labels.codes),
        by_step.measured(operations, examples, codes),
    )


class _BySteps:
    """Adds time up for each word, in the window and in each of its steps."""

    def __init__(self, work: Tallied, steps: Steps, window: Window) -> None:
        begins, ends = work.device.work.begins, work.device.work.ends
        self.times = clipped(begins, ends, work.own, window)
        starts = np.asarray([row.begin for row in counted(steps, window)], np.int64)
        self.steps = len(starts)
        # What begins between two steps is of the one that it follows.
        self.step = np.maximum(np.searchsorted(starts, begins, "right") - 1, 0)

    def measured(
        self,
        words: Sequence[_Key],
        examples: Sequence[str],
        codes: NDArray[np.int32] | NDArray[np.int16],
    ) -> dict[_Key, Measured]:
        places: dict[_Key, int] = {}
        named: list[str] = []
        merged = np.empty(len(words) + 1, np.int64)
        for at, (word, example) in enumerate(zip(words, examples, strict=True)):
            merged[at] = places.setdefault(word, len(places))
            if merged[at] == len(named):
                named.append(example)
        merged[-1] = len(places)  # what has no word; it is never shown
        mine = merged[codes]
        size = len(places) + 1
        totals = whole_sums(mine, self.times, size)
        rows = None
        if self.steps >= _FEWEST and self.steps * size <= _MOST_CELLS:
            cells = np.bincount(mine * self.steps + self.step, self.times, size * self.steps)
            rows = cells.reshape(size, self.steps)
        return {
            word: Measured(totals[at], spread_of(rows[at]) if rows is not None else None, named[at])
            for word, at in places.items()
            if totals[at]
        }


def _operations(work: Tallied) -> tuple[list[Operation], list[str], NDArray[np.int32]]:
    """What each event's operation is known by, an example of its name, and the codes."""
    columns = work.device.work
    places, found = distinct(
        (
            columns.programs,
            columns.operations.codes,
            columns.modules.codes,
            columns.labels.codes,
            work.categories.codes.astype(np.int32),
        )
    )
    modules = _modules(work)
    known: list[Operation] = []
    examples: list[str] = []
    for program, operation, module, label, kind in found:
        word = columns.labels.words[label]
        name = columns.operations.words[operation] if operation != NONE else ""
        instruction = work.programs.instruction(program, name) if name else None
        source = ""
        said = name or family_of(word)
        embedded = instruction is not None and bool(instruction.op_name)
        if instruction is not None and embedded:
            said = _PROGRAM.sub("", instruction.op_name) or instruction.op_name
            location = instruction.location
            if location is not None:
                source = f"{PurePath(location.file).name}:{location.line}"
        known.append(
            Operation(
                modules[module],
                said,
                work.categories.kinds[kind],
                source,
                embedded,
            )
        )
        examples.append(name or family_of(word))
    return known, examples, places.astype(np.int32)


def _modules(work: Tallied) -> list[str]:
    """What each module is called; the last one is that of events without any."""
    column = work.device.work.modules
    totals = whole_sums(column.codes.astype(np.int64) + 1, work.own, len(column.words) + 1)
    longest = max(range(len(column.words)), key=lambda code: totals[code + 1], default=NONE)
    return [*("" if code == longest else word for code, word in enumerate(column.words)), ""]
