"""Which type promotions lie behind a product's operands."""

from __future__ import annotations

from collections.abc import Sequence

from hloscope.ir import Instruction
from hloscope.passes.origins import moves
from hloscope.passes.promotions import Promotion, Promotions

__all__ = ["promotions_behind"]

_MOST_VALUES = 400
# What comes before another product or a choice of elements is that one's matter.
_ENDS = frozenset({"dot", "convolution", "ragged-dot", "custom-call", "while", "conditional"})


def promotions_behind(product: Instruction, promotions: Promotions) -> Sequence[Promotion]:
    """Promotions on the lines that a product's wide operands are computed on.

    Walks from the operands back through fusions' parameters to other products,
    loops and arguments, over so many values at most, and looks for lines on
    which promotion makes the operand's type. The walk knows lines and not
    values: XLA has moved or merged most conversions by then.

    Args:
        product: A product with a wide operand.
        promotions: Those of the program.
    """
    lines = {(row.file, row.line, row.result): row for row in promotions.rows if row.file}
    found: dict[tuple[str, int, str], Promotion] = {}
    for operand in product.operands:
        dtype = operand.shape.dtype if operand.shape.is_array else ""
        pending, seen = [operand], {operand}
        while pending and len(seen) < _MOST_VALUES:
            value = pending.pop()
            if value.opcode in _ENDS:
                continue
            # Fusions and copies bear the name of what they hold.
            location = None if value.opcode == "fusion" or moves(value) else value.location
            key = (location.file, location.line, dtype) if location is not None else ("", 0, "")
            row = lines.get(key)
            if row is not None and row.largest >= operand.shape.num_elements:
                found[key] = row
            behind = _behind(value)
            pending += [one for one in behind if one not in seen]
            seen.update(behind)
    return list(found.values())


def _behind(value: Instruction) -> Sequence[Instruction]:
    if value.opcode == "fusion" and value.called:
        return (value.called[0].root,)
    if value.opcode == "parameter":
        callers = value.computation.callers
        number = value.parameter_number or 0
        if len(callers) == 1 and callers[0].opcode in ("fusion", "call"):
            operands = callers[0].operands
            return operands[number : number + 1]
        return ()
    return value.operands
