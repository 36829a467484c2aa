"""Products of every row with every group's weights, of which a choice keeps a few to a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from hloscope.ir import Instruction
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.product_sizes import ProductSizes, Sizes
from hloscope.passes.ways_back import origin_of

__all__ = ["Choice", "find_choices"]

_MAX_VALUES = 200
# What leaves zeros where a mask has them, and the operands that a mask may stand behind.
_KEEP_ZEROS = {
    "broadcast": slice(0, 1),
    "dot": slice(0, 2),
    "multiply": slice(0, 2),
    "reduce": slice(0, 1),
    "select": slice(0, 2),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What each row chooses among groups.

    Attributes:
        groups: How many there are.
        rows: How many rows choose.
        chosen: How many groups a row chooses at most.
        size: Multiply-adds of all rows with one group's weights, as in a product that the
            choice weighs.
        mask: The comparison of choices with the groups' numbers.
    """

    groups: int
    rows: int
    chosen: int
    size: int
    mask: Instruction

    def covers(self, sizes: Sizes) -> bool:
        """Whether a product is one of all these rows with each group's weights.

        The gradient of the weights sums over the rows, that of rows which all groups share
        over the groups; products that share a side may be computed as one. Compilers
        also put parts of a sum into a batch.
        """
        batch = prod(sizes.batch)
        if batch != self.groups and self.groups not in (*sizes.batch, *sizes.summed):
            return False
        rows, columns, summed = prod(sizes.rows), prod(sizes.columns), prod(sizes.summed)
        parts = batch // self.groups if batch % self.groups == 0 else 1
        return self.rows in (rows, columns, parts * summed) and (
            batch * rows * columns * summed % (self.groups * self.size) == 0
        )


def find_choices(sizes: ProductSizes, graph: CallGraph) -> list[Choice]:
    """Find products that are weighed by a choice: ``one_hot(choice, groups)`` times weights.

    A product in a batch of groups is followed to where its result is multiplied, there
    the other side back to a comparison of an array with the groups' numbers.
    """
    batched = {
        row.instruction: sizes.by_product[row.instruction]
        for row in sizes.rows
        if prod(sizes.by_product[row.instruction].batch) > 1
    }
    found: dict[tuple[int, int], Choice] = {}
    if not batched:
        return []
    for instruction in graph.instructions():
        if instruction.opcode not in ("multiply", "dot"):
            continue
        sides = instruction.operands[:2]
        for side, other in (sides, sides[::-1]):
            product = batched.get(origin_of(side, graph))
            if product is None:
                continue
            for mask in _masks_behind(other, graph):
                for choice in _choices(mask, product, graph):
                    found.setdefault((choice.groups, choice.rows), choice)
    return list(found.values())


def _choices(mask: Instruction, product: Sizes, graph: CallGraph) -> Iterator[Choice]:
    groups = prod(product.batch)
    if _numbered(mask, graph) != groups:
        return
    ones = mask.shape.num_elements // groups
    for rows in (prod(product.rows), prod(product.columns)):
        if ones % rows == 0 and 0 < ones // rows < groups:
            size = prod((*product.rows, *product.columns, *product.summed))
            yield Choice(groups, rows, ones // rows, size, mask)
            return


def _masks_behind(value: Instruction, graph: CallGraph) -> Iterator[Instruction]:
    """The comparisons for equality that decide where a value is zero."""
    waiting, seen = [value], set[Instruction]()
    while waiting and len(seen) < _MAX_VALUES:
        value = origin_of(waiting.pop(), graph)
        if value in seen:
            continue
        seen.add(value)
        if value.opcode == "compare" and value.attributes.get("direction") == "EQ":
            yield value
        elif value.opcode in _KEEP_ZEROS:
            waiting.extend(value.operands[_KEEP_ZEROS[value.opcode]])


def _numbered(mask: Instruction, graph: CallGraph) -> int | None:
    """How many numbers a mask compares another array with, which is not numbers alone itself."""
    sides = [origin_of(operand, graph) for operand in mask.operands[:2]]
    while any(side.opcode == "broadcast" for side in sides):
        sides = [origin_of(s.operands[0], graph) if s.opcode == "broadcast" else s for s in sides]
    iotas = [side for side in sides if side.opcode == "iota"]
    if len(iotas) != 1 or any(side.opcode == "constant" for side in sides):
        return None
    (iota,) = iotas
    axis = iota.attributes.get("iota_dimension")
    return iota.shape.dimensions[int(str(axis))] if axis is not None else None
