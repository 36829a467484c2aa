"""Products over all groups, where a mask leaves few to each row.

They are ragged products made dense, which multiply copies of the rows, each masked for
one group, and experts that all run on all tokens, where a choice weighs what they put out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hloscope.ir import Instruction
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.chosen_groups import find_choices
from hloscope.passes.flops.ledger import FlopRow
from hloscope.passes.product_sizes import ProductSizes
from hloscope.passes.ways_back import origin_of, way_back
from hloscope.pipeline.analyses import analysis

__all__ = ["MaskedProduct", "MaskedProducts", "find_masked_products"]


@dataclass(frozen=True, slots=True)
class MaskedProduct:
    """One product over every group, of which a mask leaves few groups to each row.

    Attributes:
        row: The product.
        groups: How many groups, and so how often each row is multiplied.
        mask: The ``select`` that leaves a copy's own rows and puts zero for the others,
            or the comparison of what each row chose with the groups' numbers.
        chosen: How many groups the mask leaves to each row at most.
        weighed: Whether the mask is put on what comes out, and not on the rows.
    """

    row: FlopRow
    groups: int
    mask: Instruction
    chosen: int = 1
    weighed: bool = False

    @property
    def useful_flops(self) -> int:
        """FLOPs per execution that a grouped product needs."""
        return self.row.nominal * self.chosen // self.groups


@dataclass(frozen=True, slots=True)
class MaskedProducts:
    """The masked products of a program.

    Attributes:
        rows: Ragged ones, in the ledger's order, which multiply zeros that the step did
            not ask for.
        weighed: Those whose result is weighed by a choice, as the step asks for.
    """

    rows: tuple[MaskedProduct, ...]
    weighed: tuple[MaskedProduct, ...] = ()


@analysis
def find_masked_products(sizes: ProductSizes, graph: CallGraph) -> MaskedProducts:
    """Follow both sides of every product back to where they are computed.

    JAX and XLA write ``ragged_dot`` as ``select(mask, broadcast(rows), 0)`` with one copy
    of the rows for each group, where the mask comes of comparing positions with the groups'
    ends, and multiply all copies with all groups' weights. For what is weighed by a choice
    see ``hloscope.passes.chosen_groups``.
    """
    rows, weighed = [], []
    choices = find_choices(sizes, graph)
    for row in sizes.rows:
        covering = (
            choice for choice in choices if choice.covers(sizes.by_product[row.instruction])
        )
        if choice := next(covering, None):
            product = MaskedProduct(row, choice.groups, choice.mask, choice.chosen, weighed=True)
            weighed.append(product)
            continue
        for operand in row.instruction.operands[:2]:
            mask = _mask_behind(operand, graph)
            groups = _copies(mask, graph) if mask is not None else 1
            if mask is not None and groups > 1:
                rows.append(MaskedProduct(row, groups, mask))
                break
    return MaskedProducts(tuple(rows), tuple(weighed))


def _mask_behind(operand: Instruction, graph: CallGraph) -> Instruction | None:
    """The ``select`` that an operand comes from, if it puts zeros and tells positions apart."""
    for value in way_back(operand, graph):
        if value.opcode == "select" and len(value.operands) == 3:
            zero = origin_of(value.operands[2], graph)
            compares = _compares_positions(value.operands[0], graph)
            return value if _is_zero(zero, graph) and compares else None
    return None


def _copies(mask: Instruction, graph: CallGraph) -> int:
    """How many copies of an array a mask chooses from."""
    for value in way_back(mask.operands[1], graph):
        if value.opcode == "broadcast" and value.operands:
            source = value.operands[0].shape
            kept = value.dimensions
            added = [size for d, size in enumerate(value.shape.dimensions) if d not in kept]
            # A number that is spread out is no array of which there are copies.
            return prod(added) if source.num_elements > 1 else 1
    return 1


def _is_zero(value: Instruction, graph: CallGraph) -> bool:
    if value.opcode == "broadcast" and value.operands:
        value = origin_of(value.operands[0], graph)
    literal = value.literal
    return literal is not None and value.shape.num_elements == 1 and value.payload in _ZEROS


_ZEROS = ("0", "-0", "0.0")


def _compares_positions(mask: Instruction, graph: CallGraph) -> bool:
    """Whether a mask is where positions lie between two bounds: two comparisons with an iota."""
    both = origin_of(mask, graph)
    while both.opcode == "broadcast" and both.operands:
        both = origin_of(both.operands[0], graph)
    if both.opcode != "and":
        return False
    compares = [_behind_broadcast(operand, graph) for operand in both.operands]
    return all(
        compare.opcode == "compare"
        and any(_behind_broadcast(side, graph).opcode == "iota" for side in compare.operands)
        for compare in compares
    )


def _behind_broadcast(value: Instruction, graph: CallGraph) -> Instruction:
    value = origin_of(value, graph)
    while value.opcode == "broadcast" and value.operands:
        value = origin_of(value.operands[0], graph)
    return value
