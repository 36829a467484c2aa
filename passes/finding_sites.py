"""Where a finding about an instruction or an argument's leaf is."""

from __future__ import annotations

from hloscope.ir import Instruction
from hloscope.passes.aliasing import LeafAliasing
from hloscope.pipeline.findings import Site

__all__ = ["instruction_site", "site_of"]


def site_of(leaf: LeafAliasing) -> Site:
    """The leaf, and the instruction that the reason rests on where there is one."""
    if leaf.site is None:
        return Site(leaf=leaf.leaf.path)
    return instruction_site(leaf.site, leaf.leaf.path)


def instruction_site(
    instruction: Instruction, leaf: str | None = None, line_of: Instruction | None = None
) -> Site:
    """An instruction, with the Python line of another where it has none itself.

    Args:
        instruction: What is pointed at.
        leaf: The leaf that it concerns.
        line_of: Where to take the line from if the instruction has none; XLA's
            own copies carry none.
    """
    location = instruction.location
    if location is None and line_of is not None:
        location = line_of.location
    return Site(
        computation=instruction.computation.name,
        instruction=instruction.name,
        op_name=instruction.op_name or (line_of.op_name if line_of is not None else "") or None,
        file=location.file if location is not None else None,
        line=location.line if location is not None else None,
        leaf=leaf,
    )
