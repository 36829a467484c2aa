"""The memory of a program as XLA's own buffer assignment has it."""

from __future__ import annotations

from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.ir import Module
from hloscope.ir.proto.buffers import Allocation, BufferAssignment, LogicalBuffer
from hloscope.passes.memory_spaces import Space, has_on_chip_memory
from hloscope.pipeline.analyses import analysis

__all__ = ["AssignedMemory", "read_assigned_memory"]

_HOST = 5


@dataclass(frozen=True, slots=True)
class AssignedMemory:
    """What XLA allocated, in bytes of the device's memory.

    Attributes:
        arguments: All arguments.
        outputs: Results that lie in no argument's memory.
        aliased: Results that lie in an argument's memory.
        constants: Constants of the executable.
        temporaries: What lives only while the program runs, by memory: the
            blocks as they were laid out, gaps included.
        alive: Buffers that live in those blocks at their peak; empty where the
            file keeps neither peak nor heap trace.
    """

    arguments: int
    outputs: int
    aliased: int
    constants: int
    temporaries: dict[Space, int]
    alive: tuple[LogicalBuffer, ...]


@analysis
def read_assigned_memory(module: Module) -> AssignedMemory:
    """Add up the allocations of a module that carries them.

    Raises:
        Unavailable: It carries none, as all text and bare modules.
    """
    assignment = module.buffer_assignment
    if not isinstance(assignment, BufferAssignment):
        raise Unavailable("the module carries no buffer assignment")
    on_chip = has_on_chip_memory(module)
    temporaries: dict[Space, int] = {}
    alive: list[LogicalBuffer] = []
    arguments = outputs = aliased = constants = 0
    for allocation in assignment.allocations:
        space = _space(allocation, on_chip=on_chip)
        if allocation.is_temporary:
            temporaries[space] = temporaries.get(space, 0) + allocation.size
            alive += _alive(assignment, allocation)
        elif space is not Space.DEVICE or allocation.is_thread_local:
            continue
        elif allocation.parameter is not None:
            arguments += allocation.size
            aliased += allocation.size if allocation.is_output else 0
        elif allocation.is_output:
            outputs += allocation.size
        elif allocation.is_constant:
            constants += allocation.size
    return AssignedMemory(arguments, outputs, aliased, constants, temporaries, tuple(alive))


def _space(allocation: Allocation, *, on_chip: bool) -> Space:
    if allocation.memory_space == _HOST:
        return Space.HOST
    return Space.ON_CHIP if allocation.memory_space and on_chip else Space.DEVICE


def _alive(assignment: BufferAssignment, allocation: Allocation) -> list[LogicalBuffer]:
    """Buffers of an allocation that live when most of it is in use."""
    recorded = assignment.peak_buffers.get(allocation.index)
    if recorded is None:
        recorded = _replayed(assignment, allocation)
    known = assignment.buffers
    return [known[number] for number in recorded if number in known]


def _replayed(assignment: BufferAssignment, allocation: Allocation) -> tuple[int, ...]:
    """Play the heap simulation again; shared buffers count once, under the first one."""
    sizes = {place.buffer: place.size for place in allocation.assigned}
    owner: dict[int, int] = {}
    holders: dict[int, int] = {}
    live = most = at = 0
    events = assignment.heap_traces.get(allocation.index, ())
    for stop in (False, True):
        live, owner, holders = 0, {}, {}
        for number, event in enumerate(events):
            if event.kind == "free":
                whole = owner.pop(event.buffer, None)
                if whole is not None:
                    holders[whole] -= 1
                    if not holders[whole]:
                        del holders[whole]
                        live -= sizes.get(whole, 0)
            else:
                shares = event.kind == "share_with"
                whole = owner.get(event.shares_with, event.shares_with) if shares else event.buffer
                owner[event.buffer] = whole
                if whole not in holders:
                    live += sizes.get(whole, 0)
                holders[whole] = holders.get(whole, 0) + 1
            if stop and number == at:
                return tuple(holders)
            if not stop and live > most:
                most, at = live, number
    return ()
