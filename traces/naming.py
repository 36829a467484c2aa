"""Which Python an instruction is of, where XLA made it without saying so."""

from __future__ import annotations

from collections.abc import Callable

from hloscope.ir import Instruction

__all__ = ["line_of", "scope_of"]

_FARTHEST = 4  # instructions on the way to one that says it


def line_of(instruction: Instruction) -> str:
    """The Python line: its own, that of what is fused in it, or of what it reads; or empty."""
    named = _named(instruction, lambda each: each.location is not None)
    return str(named.location) if named is not None else ""


def scope_of(instruction: Instruction) -> str:
    """The scope of names, found in the same way; or empty."""
    named = _named(instruction, lambda each: "/" in each.op_name)
    return named.op_name.rpartition("/")[0] if named is not None else ""


def _named(instruction: Instruction, says: Callable[[Instruction], bool]) -> Instruction | None:
    """The nearest that says it: itself, its contents from their root on, what it reads."""
    level, seen = [instruction], {id(instruction)}
    for _ in range(_FARTHEST):
        following = []
        for each in level:
            if says(each):
                return each
            if each.opcode == "fusion" and each.called:
                inside = next(filter(says, reversed(each.called[0].instructions)), None)
                if inside is not None:
                    return inside
            following += [o for o in each.operands if id(o) not in seen]
            seen.update(map(id, following))
        level = following
    return None
