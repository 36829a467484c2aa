"""Arrays that hold the same data and take memory at the same time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction
from hloscope.passes.buffer_kinds import BufferKind
from hloscope.passes.buffers import Buffer
from hloscope.passes.memory_use import HeldBuffer, MemoryUse
from hloscope.passes.value_classes import distinguishing_attributes
from hloscope.pipeline.analyses import analysis

__all__ = ["DuplicateBuffers", "find_duplicate_buffers"]

_NEVER_SAME = frozenset(("custom-call", "infeed", "parameter", "recv", "rng", "while"))
_COPIES = frozenset(
    ("bitcast", "copy", "copy-done", "copy-start", "get-tuple-element", "opt-barrier")
)


@dataclass(frozen=True, slots=True)
class DuplicateBuffers:
    """Groups of buffers that hold the same data at the peak.

    Attributes:
        groups: Of two or more each, those with most spare bytes first.
    """

    groups: tuple[tuple[HeldBuffer, ...], ...]


@analysis
def find_duplicate_buffers(use: MemoryUse) -> DuplicateBuffers:
    """Compare what lives at the peak by how it is computed.

    Two arrays are the same if they are computed by the same operation (a
    fusion: by the same instructions) from the same arrays, or if one is a copy
    of the other that nothing has written to since. A copy in another layout or
    memory is not the same: an operation needs it there. Nor is a temporary copy
    that XLA makes of an argument, which it does only where something must not
    write to the argument.
    """
    prints = _Prints()
    groups: dict[Hashable, list[HeldBuffer]] = {}
    for held in use.alive:
        if held.buffer is None or _is_updated(held.buffer):
            continue  # no longer what it was made as
        if held.kind is not BufferKind.OUTPUT and _is_of_argument(held.instruction):
            continue
        key = (prints.of(held), str(held.shape))  # the shape's text has layout and memory
        groups.setdefault(key, []).append(held)
    found = [tuple(group) for group in groups.values() if len(group) > 1]
    found.sort(key=lambda group: -sum(held.size for held in group[1:]))
    return DuplicateBuffers(tuple(found))


class _Prints:
    """What arrays are made of, as something that can be compared."""

    def __init__(self) -> None:
        self.bodies: dict[Computation, Hashable] = {}

    def of(self, held: HeldBuffer) -> Hashable:
        """Copies of one array, and the array itself, have one print."""
        source = _source(held.instruction)
        if source is not held.instruction:
            if source.opcode == "get-tuple-element" and source.operands:
                return self.made(source.operands[0], source.tuple_index or 0)
            return self.made(source, 0)
        places = [n for n, leaf in enumerate(source.shape.leaves()) if leaf == held.shape]
        if len(places) != 1:
            # Which of several results of one shape it is, nothing here tells: like no other.
            return id(held)
        return self.made(source, places[0])

    def made(self, source: Instruction, place: int) -> Hashable:
        operands = tuple(id(_source(operand)) for operand in source.operands)
        if not operands or source.opcode in _NEVER_SAME or source.opcode.endswith("-start"):
            return id(source), place
        return (
            source.opcode,
            operands,
            str(source.shape),
            place,
            distinguishing_attributes(source),
            self.body(source.callee("calls")) if source.opcode == "fusion" else None,
        )

    def body(self, computation: Computation | None) -> Hashable:
        """The instructions of a fusion without their names."""
        if computation is None:
            return None
        known = self.bodies.get(computation)
        if known is None:
            known = self.bodies[computation] = tuple(
                (
                    i.opcode,
                    str(i.shape),
                    i.payload,
                    tuple(operand.index for operand in i.operands),
                    distinguishing_attributes(i),
                    # A fusion in a fusion is compared by name: this errs on the quiet side.
                    i.attributes.get("calls"),
                )
                for i in computation.instructions
            )
        return known


def _is_updated(buffer: Buffer) -> bool:
    """Whether something writes to it after it was made; the end of a copy does not."""
    return any(
        writer is not buffer.writers[0] and not writer.opcode.startswith("copy-")
        for writer in buffer.writers
    )


def _is_of_argument(instruction: Instruction) -> bool:
    """Whether it is XLA's own copy of an argument; one that the step asked for has an op_name."""
    source = _source(instruction)
    return (
        source is not instruction
        and not instruction.op_name
        and source.opcode == "parameter"
        and source.computation.is_entry
    )


def _source(instruction: Instruction) -> Instruction:
    """What an array is a copy or another name of."""
    here = instruction
    while here.opcode in _COPIES and here.operands:
        following = here.operands[0]
        if here.opcode == "get-tuple-element" and following.opcode == "tuple":
            following = following.operands[here.tuple_index or 0]
        if following.shape.is_tuple and following.opcode != "copy-start":
            break
        here = following
    return here
