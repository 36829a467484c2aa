"""Products of copies of one array, each masked for one group: ragged products made dense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from hloscope.ir import Instruction
from hloscope.passes.call_graph import CallGraph, CallKind
from hloscope.passes.flops.ledger import FlopRow
from hloscope.passes.product_sizes import ProductSizes
from hloscope.pipeline.analyses import analysis

__all__ = ["MaskedProduct", "MaskedProducts", "find_masked_products"]

_MOVES = frozenset(
    "bitcast convert copy copy-done copy-start opt-barrier reshape transpose".split()  # noqa: SIM905
)
_MAX_STEPS = 60


@dataclass(frozen=True, slots=True)
class MaskedProduct:
    """One product over every group, of which a mask leaves one group to each row.

    Attributes:
        row: The product.
        groups: How many groups, and so how many copies of the rows.
        mask: The ``select`` that leaves a copy's own rows and puts zero for the others.
    """

    row: FlopRow
    groups: int
    mask: Instruction

    @property
    def useful_flops(self) -> int:
        """FLOPs per execution that a grouped product needs."""
        return self.row.nominal // self.groups


@dataclass(frozen=True, slots=True)
class MaskedProducts:
    """The masked products of a program.

    Attributes:
        rows: In the ledger's order.
    """

    rows: tuple[MaskedProduct, ...]


@analysis
def find_masked_products(sizes: ProductSizes, graph: CallGraph) -> MaskedProducts:
    """Follow both sides of every product back to where they are computed.

    JAX and XLA write ``ragged_dot`` as ``select(mask, broadcast(rows), 0)`` with one copy
    of the rows for each group, where the mask comes of comparing positions with the groups'
    ends, and multiply all copies with all groups' weights.
    """
    rows = []
    for row in sizes.rows:
        for operand in row.instruction.operands[:2]:
            mask = _mask_behind(operand, graph)
            groups = _copies(mask, graph) if mask is not None else 1
            if mask is not None and groups > 1:
                rows.append(MaskedProduct(row, groups, mask))
                break
    return MaskedProducts(tuple(rows))


def _way_back(value: Instruction, graph: CallGraph) -> Iterator[Instruction]:
    """The value and what it is a rearrangement of, in and out of fusions."""
    index: int | None = None
    for _ in range(_MAX_STEPS):
        yield value
        opcode, operands = value.opcode, value.operands
        if opcode == "get-tuple-element" and operands:
            index, value = value.tuple_index, operands[0]
        elif opcode in ("fusion", "call") and value.called:
            value = value.called[0].root
            if value.opcode == "tuple":
                if index is None or index >= len(value.operands):
                    return
                value, index = value.operands[index], None
        elif opcode == "parameter":
            calls = graph.callers.get(value.computation, ())
            number = value.parameter_number or 0
            if len(calls) != 1 or calls[0].kind is not CallKind.ONCE:
                return
            if number >= len(calls[0].caller.operands):
                return
            value = calls[0].caller.operands[number]
        elif opcode in _MOVES and operands:
            value = operands[0]
        else:
            return


def _mask_behind(operand: Instruction, graph: CallGraph) -> Instruction | None:
    """The ``select`` that an operand comes from, if it puts zeros and tells positions apart."""
    for value in _way_back(operand, graph):
        if value.opcode == "select" and len(value.operands) == 3:
            zero = _last(value.operands[2], graph)
            compares = _compares_positions(value.operands[0], graph)
            return value if _is_zero(zero, graph) and compares else None
    return None


def _copies(mask: Instruction, graph: CallGraph) -> int:
    """How many copies of an array a mask chooses from."""
    for value in _way_back(mask.operands[1], graph):
        if value.opcode == "broadcast" and value.operands:
            source = value.operands[0].shape
            kept = value.dimensions
            added = [size for d, size in enumerate(value.shape.dimensions) if d not in kept]
            # A number that is spread out is no array of which there are copies.
            return prod(added) if source.num_elements > 1 else 1
    return 1


def _is_zero(value: Instruction, graph: CallGraph) -> bool:
    if value.opcode == "broadcast" and value.operands:
        value = _last(value.operands[0], graph)
    literal = value.literal
    return literal is not None and value.shape.num_elements == 1 and value.payload in _ZEROS


_ZEROS = ("0", "-0", "0.0")


def _last(value: Instruction, graph: CallGraph) -> Instruction:
    for step in _way_back(value, graph):
        value = step
    return value


def _compares_positions(mask: Instruction, graph: CallGraph) -> bool:
    """Whether a mask is where positions lie between two bounds: two comparisons with an iota."""
    both = _last(mask, graph)
    while both.opcode == "broadcast" and both.operands:
        both = _last(both.operands[0], graph)
    if both.opcode != "and":
        return False
    compares = [_behind_broadcast(operand, graph) for operand in both.operands]
    return all(
        compare.opcode == "compare"
        and any(_behind_broadcast(side, graph).opcode == "iota" for side in compare.operands)
        for compare in compares
    )


def _behind_broadcast(value: Instruction, graph: CallGraph) -> Instruction:
    value = _last(value, graph)
    while value.opcode == "broadcast" and value.operands:
        value = _last(value.operands[0], graph)
    return value
