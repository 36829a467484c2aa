"""What each kernel or operation did: by its HLO instruction, by its name only without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hloscope.errors import HloscopeError
from hloscope.ir import Instruction, Module, read_proto
from hloscope.traces.graphs import is_whole_graph
from hloscope.traces.kernel_names import Category, category_of_name
from hloscope.traces.recording import NONE, Recording
from hloscope.traces.timeline import Device

__all__ = ["Categories", "Programs", "categorize", "category_of_instruction"]

_BY_OPCODE: Mapping[str, Category] = {
    **dict.fromkeys(("dot", "ragged-dot", "scaled-dot"), Category.GEMM),
    "convolution": Category.CONVOLUTION,
    **dict.fromkeys(("reduce", "reduce-window", "select-and-scatter"), Category.REDUCTION),
    "convert": Category.CONVERT,
    **dict.fromkeys(("copy", "transpose", "reshape", "bitcast", "concatenate"), Category.LAYOUT),
    **dict.fromkeys(("slice", "pad", "reverse"), Category.LAYOUT),
    **dict.fromkeys(("copy-start", "copy-done", "slice-start", "slice-done"), Category.IN_FLIGHT),
    **dict.fromkeys(("dynamic-slice", "dynamic-update-slice"), Category.LAYOUT),
    **dict.fromkeys(("scatter", "gather"), Category.SCATTER),
    **dict.fromkeys(("sort", "topk"), Category.SORT),
    **dict.fromkeys(("rng", "rng-bit-generator", "rng-get-and-update-state"), Category.RANDOM),
    **dict.fromkeys(("cholesky", "triangular-solve", "fft"), Category.LINEAR_ALGEBRA),
    **dict.fromkeys(("all-reduce", "all-reduce-start", "all-reduce-done"), Category.ALL_REDUCE),
    **dict.fromkeys(("all-gather", "all-gather-start", "all-gather-done"), Category.ALL_GATHER),
    "reduce-scatter": Category.REDUCE_SCATTER,
    **dict.fromkeys(("all-to-all", "ragged-all-to-all"), Category.ALL_TO_ALL),
    **dict.fromkeys(
        ("collective-permute", "collective-permute-start", "collective-permute-done"),
        Category.PERMUTE,
    ),
    **dict.fromkeys(
        ("collective-broadcast", "send", "send-done", "recv", "recv-done"), Category.COLLECTIVE
    ),
    **dict.fromkeys(("while", "call", "conditional"), Category.CONTROL),
}

# What a TPU's profiler calls its instructions' kinds; of others their names say more.
_HINTS: Mapping[str, Category] = {
    "convolution": Category.CONVOLUTION,
    "convolution fusion": Category.GEMM,
    "output fusion": Category.GEMM,
    "dot": Category.GEMM,
    "loop fusion": Category.ELEMENTWISE,
    "input fusion": Category.REDUCTION,
    "non-fusion elementwise": Category.ELEMENTWISE,
    "data formatting": Category.LAYOUT,
    "copy-start": Category.IN_FLIGHT,
    "copy-done": Category.IN_FLIGHT,
    "async-start": Category.IN_FLIGHT,
    "async-done": Category.IN_FLIGHT,
    "reduce": Category.REDUCTION,
    "rng-bit-generator": Category.RANDOM,
    "sort": Category.SORT,
    "scatter": Category.SCATTER,
    "gather": Category.SCATTER,
    "while": Category.CONTROL,
    "conditional": Category.CONTROL,
    "call": Category.CONTROL,
    "all-reduce": Category.ALL_REDUCE,
    "all-reduce fusion": Category.ALL_REDUCE,
    "all-gather": Category.ALL_GATHER,
    "all-gather fusion": Category.ALL_GATHER,
    "reduce-scatter": Category.REDUCE_SCATTER,
    "reduce-scatter fusion": Category.REDUCE_SCATTER,
    "all-to-all": Category.ALL_TO_ALL,
    "collective-permute": Category.PERMUTE,
    "custom-call": Category.KERNEL,
    "custom fusion": Category.KERNEL,
}

# In a fusion the dearest kind of work decides, whatever its root is.
_DEAREST = (
    Category.ATTENTION,
    Category.CONVOLUTION,
    Category.GEMM,
    Category.SORT,
    Category.SCATTER,
    Category.RANDOM,
    Category.REDUCTION,
)
_PLAIN = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast"})


def category_of_instruction(instruction: Instruction) -> Category:
    """What an instruction does; of a fusion its hero, of a call to a library its target."""
    opcode = instruction.opcode
    if opcode == "fusion" and instruction.called:
        return _of_fusion(instruction)
    if opcode == "custom-call":
        found = category_of_name(instruction.custom_call_target or "")
        plain = found in (Category.OTHER, Category.ELEMENTWISE)
        return Category.KERNEL if plain else found
    if opcode in ("async-start", "async-update", "async-done") and instruction.called:
        found = category_of_instruction(instruction.called[0].root)
        # What only moves memory is a transfer once it runs beside other work.
        return Category.IN_FLIGHT if found is Category.LAYOUT else found
    return _BY_OPCODE.get(opcode, Category.ELEMENTWISE)


def _of_fusion(fusion: Instruction) -> Category:
    inside = [each for each in fusion.called[0].instructions if each.opcode not in _PLAIN]
    found = {category_of_instruction(each) for each in inside}
    for category in _DEAREST:
        if category in found:
            return category
    found.discard(Category.CONTROL)
    if found <= {Category.LAYOUT}:
        return Category.LAYOUT
    if found <= {Category.LAYOUT, Category.CONVERT}:
        return Category.CONVERT
    return next((c for c in found if c.is_communication), Category.ELEMENTWISE)


class Programs:
    """The modules that a recording embeds, read when they are asked for.

    Args:
        recording: What holds them.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[int, Module | None] = {}
        self.failed: dict[int, str] = {}

    def instruction(self, program: int, name: str) -> Instruction | None:
        """An instruction by its program and its name, if it is embedded."""
        module = self.module(program)
        return module.by_name.get(name) if module is not None else None

    def instructions(self, program: int) -> Iterable[Instruction]:
        """All of a program's instructions; none where it is not embedded."""
        module = self.module(program)
        return module.instructions() if module is not None else ()

    def content(self, program: int) -> bytes | None:
        """A program's serialized module as it is embedded."""
        give = self._recording.programs.get(program)
        return give() if give is not None and program not in self.failed else None

    def module(self, program: int) -> Module | None:
        """A program's module; ``None`` where it is not embedded, or cannot be read."""
        if program not in self._known:
            self._known[program] = self._read(program)
        return self._known[program]

    def _read(self, program: int) -> Module | None:
        give = self._recording.programs.get(program)
        if give is None:
            return None
        try:
            return read_proto(give())
        except HloscopeError as error:
            self.failed[program] = error.message
            return None


@dataclass(frozen=True)
class Categories:
    """What every event of a device's work did.

    Attributes:
        kinds: The categories.
        codes: Place of each event's in them.
        joined: Whether the event's instruction is known.
    """

    kinds: tuple[Category, ...]
    codes: NDArray[np.int16]
    joined: NDArray[np.bool_]

    def of(self, category: Category) -> NDArray[np.bool_]:
        """Which events are of a category."""
        if category not in self.kinds:
            return np.zeros(len(self.codes), np.bool_)
        return np.equal(self.codes, self.kinds.index(category))

    @cached_property
    def communicating(self) -> NDArray[np.bool_]:
        """Which events exchange data with other devices."""
        return self._any([category.is_communication for category in self.kinds])

    @cached_property
    def copying(self) -> NDArray[np.bool_]:
        """Which events only move or clear memory."""
        return self._any([category.is_copy for category in self.kinds])

    @cached_property
    def containing(self) -> NDArray[np.bool_]:
        """Which events only hold others: loops, calls, branches."""
        return self.of(Category.CONTROL)

    def _any(self, chosen: list[bool]) -> NDArray[np.bool_]:
        marks: NDArray[np.bool_] = np.asarray([*chosen, False], np.bool_)
        found: NDArray[np.bool_] = marks[self.codes]
        return found


def categorize(device: Device, programs: Programs) -> Categories:
    """Say of every event what it did: once for each program, operation and label."""
    work = device.work
    kinds: dict[Category, int] = {}
    groups = work.groups
    codes = np.zeros(len(groups.rows), np.int16)
    joined = np.zeros(len(groups.rows), np.bool_)
    for place, (program, operation, label, hint, _) in enumerate(groups.rows):
        name = work.operations.words[operation] if operation != NONE else ""
        instruction = programs.instruction(program, name) if name else None
        word = work.labels.words[label]
        if name and " = " in word:
            word = name  # a TPU's label is the instruction's whole text, operands and all
        hinted = _HINTS.get(work.hints.words[hint]) if hint != NONE else None
        if instruction is not None:
            category = category_of_instruction(instruction)
            joined[place] = True
        elif hinted is not None:
            category = hinted
        else:
            category = category_of_name(word)
            named = category_of_name(name) if name else Category.OTHER
            # An exchange is one whatever does it: a copy between two devices, say.
            if category is Category.OTHER or named.is_communication:
                category = named
        if category is Category.KERNEL:
            # A library's call under its own target: its kernels may say more.
            said = category_of_name(word)
            known = said not in (Category.OTHER, Category.ELEMENTWISE)
            category = said if known else category
        elif category is Category.IN_FLIGHT:
            # A GPU's copies say between what they copy; a TPU starts exchanges like copies.
            said = category_of_name(word)
            category = said if said.is_copy or said.is_communication else category
        if is_whole_graph(word):
            category = Category.GRAPH  # it may bear the name of the first operation in it
        codes[place] = kinds.setdefault(category, len(kinds))
    return Categories(tuple(kinds), codes[groups.places], joined[groups.places])
