"""Arrays that a launch reads in whole from the device's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.collectives import Collectives
from hloscope.passes.execution import Execution
from hloscope.passes.fusion_traffic import Needs, fusion_traffic, needs_inside
from hloscope.passes.memory_spaces import Space, has_on_chip_memory, space_of
from hloscope.pipeline.analyses import analysis

__all__ = ["OperandReads", "prepare_operand_reads"]

_PARTS = frozenset(
    "dynamic-slice dynamic-update-slice gather scatter slice slice-start".split()  # noqa: SIM905
)
_SMALLEST = 1 << 16  # bytes; smaller arrays stay in a cache between two launches
_WHOLE = 0.5  # share of an array from which a launch reads all of it


@dataclass(frozen=True, slots=True)
class OperandReads:
    """Tells what single operands of a launch take from memory.

    Attributes:
        on_chip: Whether memory spaces other than the host's lie inside the core.
        repeats: Collectives that another instruction already stands for.
        nested: What fusions inside of fusions need.
    """

    on_chip: bool
    repeats: frozenset[Instruction]
    nested: Needs

    def whole(self, launch: Instruction) -> Iterator[tuple[Instruction, int]]:
        """Operands of which a launch reads half or more, with the bytes.

        Arrays of less than 64 KiB, and operands that are tuples, are left out.
        """
        operands = launch.operands
        if launch.opcode in _PARTS or not all(operand.shape.is_array for operand in operands):
            return
        sizes = [operand.shape.padded_bytes for operand in operands]
        if launch.opcode == "fusion":
            try:
                reads = fusion_traffic(launch, self.repeats, self.nested).reads
            except (Unavailable, IndexError, ValueError):
                return
            sizes = [size for _, size in reads]
        for operand, size in zip(operands, sizes, strict=False):
            whole = operand.shape.padded_bytes
            if whole < _SMALLEST or size < _WHOLE * whole:
                continue
            if space_of(operand.shape, on_chip=self.on_chip) is Space.DEVICE:
                yield operand, size


@analysis
def prepare_operand_reads(
    module: Module, graph: CallGraph, execution: Execution, collectives: Collectives
) -> OperandReads:
    """Prepare to tell; each launch is looked at when it is asked for."""
    return OperandReads(
        has_on_chip_memory(module), collectives.repeats, needs_inside(graph, execution)
    )
