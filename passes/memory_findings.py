"""What findings about buffers at the peak have in common: where they are, how much they matter."""

from __future__ import annotations

from hloscope.chips import Chip
from hloscope.ir import Instruction
from hloscope.passes.buffer_kinds import place_in
from hloscope.passes.memory_use import HeldBuffer, MemoryUse
from hloscope.passes.residual_makers import argument_of
from hloscope.passes.residuals import Residual
from hloscope.pipeline.findings import Severity, Site
from hloscope.pipeline.rules import Limits

__all__ = ["copied_argument", "held_site", "is_roomy", "memory_severity"]


def held_site(held: HeldBuffer, residual: Residual | None = None) -> Site:
    """The buffer in the HLO, and in Python what computed its values.

    Args:
        held: The buffer.
        residual: What is known of it if it is kept for the backward pass.
    """
    origin = residual.origin if residual is not None else held.origin
    argument = origin.opcode == "parameter" and origin.computation.is_entry
    location = origin.location
    return Site(
        computation=held.instruction.computation.name,
        instruction=held.instruction.name,
        op_name=origin.op_name or None,
        file=location.file if location is not None else None,
        line=location.line if location is not None else None,
        leaf=(origin.op_name or None) if argument else None,
    )


def copied_argument(held: HeldBuffer) -> Instruction | None:
    """The argument that a temporary is a copy, a cast or a part of, if it is."""
    place = place_in(held.buffer, held.instruction) if held.buffer is not None else None
    return argument_of(held.instruction, place)


def is_roomy(use: MemoryUse, chip: Chip | None) -> bool:
    """Whether more than half of the chip's memory is free at the peak."""
    return chip is not None and chip.memory_bytes is not None and 2 * use.peak < chip.memory_bytes


def memory_severity(limits: Limits, share: float, use: MemoryUse, chip: Chip | None) -> Severity:
    """By the share (0..1) of the peak; a note where the chip has room to spare."""
    return Severity.NOTE if is_roomy(use, chip) else limits.severity(share)
