"""How much memory a program takes, when most of it, and for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hloscope.chips import Chip
from hloscope.ir import Instruction, Module, Shape
from hloscope.passes.assigned_memory import AssignedMemory
from hloscope.passes.buffer_kinds import BufferKind, BufferKinds, named_origin
from hloscope.passes.buffers import Buffer
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space, has_on_chip_memory
from hloscope.passes.paused_collection import paused_collection
from hloscope.passes.pointer_tables import table_bytes
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = ["LIVE_RANGES", "HeldBuffer", "MemoryUse", "measure_memory"]

LIVE_RANGES = "live ranges over the schedule"


@dataclass(frozen=True, slots=True)
class HeldBuffer:
    """One buffer that takes memory at the peak.

    Attributes:
        instruction: What defines it.
        origin: The nearest instruction with an op_name: itself, or what it is made of.
        shape: The array in it.
        size: Bytes, padding included.
        kind: What it is for.
        space: Which memory it lies in.
        buffer: Its live range; ``None`` where XLA's own assignment named it.
    """

    instruction: Instruction
    origin: Instruction
    shape: Shape
    size: int
    kind: BufferKind
    space: Space
    buffer: Buffer | None = None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory of one device that one execution takes, in bytes.

    Attributes:
        arguments: All arguments, padding included.
        outputs: Results that lie in no argument's memory, with the table of
            pointers to the results.
        aliased: Results that lie in an argument's memory.
        constants: Constants of the executable.
        temporaries: What lives only while the program runs, at its peak, by memory.
        basis: Exact where XLA's buffer assignment was read, else modelled.
        model: The model's name.
        alive: Every buffer that takes device memory at the peak, largest first.
        under: The instruction that runs at the peak, from the entry's inwards.
        ranges: The live ranges behind it.
    """

    arguments: int
    outputs: int
    aliased: int
    constants: int
    temporaries: Mapping[Space, int]
    basis: Basis
    model: str | None
    alive: tuple[HeldBuffer, ...]
    under: tuple[Instruction, ...]
    ranges: LiveRanges

    @property
    def resident(self) -> int:
        """What takes device memory all the while: arguments, results and constants."""
        return self.arguments + self.outputs + self.constants

    @property
    def peak(self) -> int:
        """Device memory at the peak: what is resident and the temporaries."""
        return self.resident + self.temporaries.get(Space.DEVICE, 0)

    @property
    def peak_of_any(self) -> int:
        """The peak if the memory that holds most temporaries is counted, in or off the chip.

        XLA's own single figure speaks of that one: of vector memory where a TPU
        program keeps next to nothing outside it.
        """
        spaces = (Space.DEVICE, Space.ON_CHIP)
        return self.resident + max(self.temporaries.get(space, 0) for space in spaces)

    def of_kind(self, kind: BufferKind) -> int:
        """Bytes of one kind at the peak."""
        return sum(held.size for held in self.alive if held.kind is kind)


@analysis
def measure_memory(
    module: Module,
    ranges: LiveRanges,
    kinds: BufferKinds,
    assigned: AssignedMemory | None,
    chip: Chip | None,
) -> MemoryUse:
    """Take XLA's buffer assignment where the module carries it, else the live ranges.

    Raises:
        Unavailable: The module is not scheduled.
    """
    stack = ranges.stack()
    under = tuple(
        frame.computation.instructions[position]
        for frame, position in stack
        if position < len(frame.computation.instructions)
    )
    with paused_collection():
        resident = _resident(ranges)
        modelled = _temporaries(ranges, kinds)
    if assigned is not None:
        temporaries = [
            _held(
                buffer.instruction,
                _at(buffer.instruction.shape, buffer.shape_index),
                buffer.size,
                _kind_by_range(ranges, kinds, buffer.instruction),
                Space.DEVICE,
            )
            for buffer in assigned.alive
            if buffer.instruction is not None and not buffer.memory_space
        ] or modelled
        return MemoryUse(
            assigned.arguments,
            assigned.outputs,
            assigned.aliased,
            assigned.constants,
            assigned.temporaries,
            Basis.EXACT,
            None,
            _sorted(resident, temporaries),
            under,
            ranges,
        )
    return MemoryUse(
        _device(ranges.parameters),
        _device(ranges.outputs) + _pointer_table(module, chip),
        ranges.aliased_bytes,
        _device(ranges.constants),
        {space: profile.peak for space, profile in ranges.entry.profiles.items()},
        Basis.MODELLED,
        LIVE_RANGES,
        _sorted(resident, modelled),
        under,
        ranges,
    )


def _device(buffers: tuple[Buffer, ...]) -> int:
    return sum(buffer.size for buffer in buffers if buffer.space is Space.DEVICE)


def _pointer_table(module: Module, chip: Chip | None) -> int:
    """Bytes of the table that a program with several results returns."""
    shape = module.entry.root.shape
    if not shape.is_tuple:
        return 0
    return table_bytes(len(shape.elements), tpu=has_on_chip_memory(module), chip=chip)


def _resident(ranges: LiveRanges) -> list[HeldBuffer]:
    held = [_of_buffer(b, BufferKind.PARAMETER) for b in ranges.parameters]
    held += [_of_buffer(b, BufferKind.OUTPUT) for b in ranges.outputs]
    return held + [_of_buffer(b, BufferKind.CONSTANT) for b in ranges.constants]


def _temporaries(ranges: LiveRanges, kinds: BufferKinds) -> list[HeldBuffer]:
    reached = {frame.computation: position for frame, position in ranges.stack()}
    return [
        _of_buffer(buffer, kinds[buffer], reached.get(buffer.instruction.computation))
        for buffer in ranges.alive()
    ]


def _of_buffer(buffer: Buffer, kind: BufferKind, at: int | None = None) -> HeldBuffer:
    """A buffer under the name of what was written to it last, as a whole, at that position."""
    instruction = buffer.instruction
    for writer in buffer.writers:
        if at is not None and writer.index <= at and writer.shape == buffer.shape:
            instruction = writer
    return HeldBuffer(
        instruction,
        named_origin(instruction),
        buffer.shape,
        buffer.size,
        kind,
        buffer.space,
        buffer,
    )


def _held(
    instruction: Instruction, shape: Shape, size: int, kind: BufferKind, space: Space
) -> HeldBuffer:
    return HeldBuffer(instruction, named_origin(instruction), shape, size, kind, space)


def _kind_by_range(ranges: LiveRanges, kinds: BufferKinds, instruction: Instruction) -> BufferKind:
    values = ranges.table.values.get(instruction)
    return kinds[values[0].resolve()] if values else BufferKind.TEMPORARY


def _at(shape: Shape, index: tuple[int, ...]) -> Shape:
    for number in index:
        if number < len(shape.elements):
            shape = shape.elements[number]
    return shape


def _sorted(*groups: list[HeldBuffer]) -> tuple[HeldBuffer, ...]:
    everything = [
        held for group in groups for held in group if held.space is Space.DEVICE and held.size
    ]
    return tuple(sorted(everything, key=lambda held: (-held.size, held.instruction.name)))
