"""XLA's buffer assignment: which allocation holds which instruction's result, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hloscope.ir.module import Instruction
from hloscope.ir.proto.schema import enum_name

__all__ = ["Allocation", "Assigned", "BufferAssignment", "HeapEvent", "LogicalBuffer"]


@dataclass(frozen=True, slots=True)
class LogicalBuffer:
    """One value that needs memory.

    Attributes:
        id: Number that allocations and heap events refer to.
        size: Bytes.
        instruction: What defines it; ``None`` where the module has no such
            instruction.
        shape_index: Which part of the instruction's result.
        memory_space: XLA's number ("color").
    """

    id: int
    size: int
    instruction: Instruction | None
    shape_index: tuple[int, ...]
    memory_space: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """A logical buffer's place in an allocation, in bytes; places may overlap over time."""

    buffer: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """One block of memory.

    Attributes:
        index: Its number.
        size: Bytes; the sum over ``assigned`` is no measure, for they share it.
        memory_space: XLA's number ("color").
        parameter: Number of the entry parameter that it holds, or ``None``.
        parameter_index: Which part of that parameter.
        is_output: Whether it may outlive the program ("maybe live out").
        is_constant: Whether it holds a constant.
        is_thread_local: Whether each thread that runs a computation has its own.
        is_tuple: Whether it holds a table of pointers.
        is_aliased: Whether a parameter's memory holds a result afterwards.
        assigned: What lies in it.
    """

    index: int
    size: int
    memory_space: int
    parameter: int | None
    parameter_index: tuple[int, ...]
    is_output: bool
    is_constant: bool
    is_thread_local: bool
    is_tuple: bool
    is_aliased: bool
    assigned: tuple[Assigned, ...]

    @property
    def is_temporary(self) -> bool:
        """Whether it lives only while the program runs."""
        return not (
            self.parameter is not None or self.is_output or self.is_constant or self.is_thread_local
        )


@dataclass(frozen=True, slots=True)
class HeapEvent:
    """A step of the heap simulation: ``alloc``, ``free`` or ``share_with`` of a buffer."""

    kind: str
    buffer: int
    shares_with: int


@dataclass(frozen=True, slots=True)
class BufferAssignment:
    """Memory of a program as XLA laid it out.

    Attributes:
        allocations: In the order of the file.
        buffers: Logical buffers by id.
        heap_traces: Events by the index of the allocation they filled, in the
            order of the schedule; empty where XLA left them out.
        peak_buffers: Ids of the buffers that live at the peak, by allocation;
            empty in files from before XLA kept them.
    """

    allocations: tuple[Allocation, ...]
    buffers: Mapping[int, LogicalBuffer]
    heap_traces: Mapping[int, tuple[HeapEvent, ...]]
    peak_buffers: Mapping[int, tuple[int, ...]]


def read_buffer_assignment(
    message: Any, instructions: Mapping[int, Instruction | None]
) -> BufferAssignment:
    """The BufferAssignment of a BufferAssignmentProto.

    Args:
        message: The BufferAssignmentProto.
        instructions: The module's instructions by id; ``None`` where an id repeats.
    """
    by_name = {i.name: i for i in instructions.values() if i is not None}
    return BufferAssignment(
        tuple(_allocation(allocation) for allocation in message.buffer_allocations),
        {
            buffer.id: LogicalBuffer(
                buffer.id,
                buffer.size,
                _definition(buffer.defined_at, instructions, by_name),
                tuple(buffer.defined_at.shape_index),
                buffer.color,
            )
            for buffer in message.logical_buffers
        },
        {
            trace.buffer_allocation_index: tuple(
                HeapEvent(
                    enum_name("HeapEventKind", event.kind).lower(),
                    event.buffer_id,
                    event.share_with_canonical_id,
                )
                for event in trace.events
            )
            for trace in message.heap_simulator_traces
        },
        {peak.index: tuple(peak.logical_buffer_ids) for peak in message.peak_buffers},
    )


def _allocation(message: Any) -> Allocation:
    is_parameter = message.is_entry_computation_parameter
    return Allocation(
        message.index,
        message.size,
        message.color,
        message.parameter_number if is_parameter else None,
        tuple(message.parameter_shape_index),
        message.maybe_live_out,
        message.is_constant,
        message.is_thread_local,
        message.is_tuple,
        message.is_parameter_aliased_with_output,
        tuple(Assigned(a.logical_buffer_id, a.offset, a.size) for a in message.assigned),
    )


def _definition(
    location: Any,
    instructions: Mapping[int, Instruction | None],
    by_name: Mapping[str, Instruction],
) -> Instruction | None:
    """The defining instruction; files before the ids name it instead."""
    if location.instruction_name:
        return by_name.get(location.instruction_name)
    return instructions.get(location.instruction_id)
