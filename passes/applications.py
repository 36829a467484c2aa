"""How often an instruction applies the small computation that it is given.

A reduction applies its reducer to so many pairs of elements, a scatter its
update to so many updates: known from the shapes alone.
"""

from __future__ import annotations

from math import prod

from hloscope.ir import Instruction, Shape

__all__ = ["all_reduced_elements", "applications", "scan_length"]


def applications(instruction: Instruction, key: str = "to_apply") -> int | None:
    """How often one execution applies the computation that an attribute names.

    As XLA's ``HloCostAnalysis`` counts it; there every window of a
    ``reduce-window`` is full, also where it hangs over into the padding, but
    for windows that cover a whole dimension from everywhere.

    Args:
        instruction: The one that applies it.
        key: ``to_apply``, or ``select`` or ``scatter`` of a select-and-scatter.

    Returns:
        ``None`` where it depends on the data, as for a sort.

    Raises:
        IndexError: It lacks an operand.
        Unavailable: A size has no upper bound.
    """
    opcode, operands = instruction.opcode.removesuffix("-start"), instruction.operands
    if opcode == "reduce":
        result = _first(instruction.shape)
        return max(0, operands[0].shape.num_elements - result.num_elements)
    if opcode == "map":
        return _first(instruction.shape).num_elements
    if opcode == "scatter":
        # Operands, indices, updates: the first of the updates stands after the indices.
        return operands[len(operands) // 2 + 1].shape.num_elements
    if opcode in ("reduce-window", "select-and-scatter"):
        window = instruction.window
        taps = prod(d.size for d in window.dimensions) if window else 1
        if opcode == "reduce-window":
            covering = _covering_window(instruction)
            return covering or (taps - 1) * _first(instruction.shape).num_elements
        source = operands[1].shape.num_elements
        return source if key == "scatter" else (taps - 1) * source
    if opcode in ("all-reduce", "reduce-scatter"):
        return all_reduced_elements(instruction)
    return None


def _covering_window(instruction: Instruction) -> int | None:
    """Reductions that XLA counts for a window which covers its dimension from everywhere.

    TPU compilers write so a reduction whose result is broadcast back, and XLA
    takes it for one over the dimension and one more for each row. ``None`` for
    every other window.
    """
    window = instruction.window
    wide = [
        (place, dimension)
        for place, dimension in enumerate(window.dimensions if window else ())
        if dimension.size != 1 or dimension.padding_low or dimension.padding_high
    ]
    if len(wide) != 1 or instruction.shape.is_tuple:
        return None
    ((place, dimension),) = wide
    length = instruction.shape.dimensions[place]
    padding = dimension.padding_low
    if padding != dimension.padding_high or dimension.size != 2 * padding + 1:
        return None
    if length != padding + 1 or length == 1:
        return None
    return instruction.shape.num_elements // length + length - 1


def all_reduced_elements(instruction: Instruction) -> int:
    """Elements that a collective reduces: those of its operands.

    Raises:
        Unavailable: A size has no upper bound.
    """
    return sum(operand.shape.num_elements for operand in instruction.operands)


def scan_length(scan: Instruction) -> int:
    """Iterations of a ``scan``: the size of the dimension that it runs along.

    Operands are the inputs that are taken apart, then the carried values; the
    results are what is stacked up, then the last carried values.

    Raises:
        IndexError: It has neither an input nor a stacked result of that rank.
        ValueError: Its attributes are no numbers, or the dimension is unbounded.
    """
    dimension = (scan.dimensions or (0,))[0]
    inputs = len(scan.operands) - scan.integer("num_carries", 0)
    shape = scan.operands[0].shape if inputs > 0 else _first(scan.shape)
    length = shape.dimensions[dimension]
    if length < 0:
        raise ValueError("the dimension that it runs along has no upper bound")
    return length


def _first(shape: Shape) -> Shape:
    return shape.elements[0] if shape.is_tuple and shape.elements else shape
