"""What a fusion reads and writes: what its result needs of each parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from hloscope.ir import Computation, Instruction, Shape
from hloscope.ir.attributes import parse_integers
from hloscope.ir.scan import split_list
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.execution import Execution

__all__ = [
    "FusionTraffic",
    "Needs",
    "fusion_traffic",
    "needs_inside",
    "part_bytes",
]


@dataclass(frozen=True, slots=True)
class FusionTraffic:
    """Bytes of one run of a fusion.

    Attributes:
        reads: For each parameter, with its shape.
        writes: For each array of the result, with its shape.
    """

    reads: tuple[tuple[Shape, int], ...]
    writes: tuple[tuple[Shape, int], ...]


# The result's elements each come of the operand's element at one place, so that
# whoever needs some of the result needs as many of the operand.
_ELEMENT_BY_ELEMENT = frozenset(
    """
    abs acos acosh add and asin asinh atan2 atanh bitcast broadcast cbrt ceil clamp compare
    complex convert copy cosh cosine divide dynamic-slice erf exponential exponential-minus-one
    floor gather get-tuple-element imag is-finite log log-plus-one logistic maximum minimum
    multiply negate not or popcnt power real reduce-precision remainder reshape reverse
    round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic
    shift-right-logical sign sine sinh slice sqrt stochastic-convert subtract tan tanh transpose
    xor
    """.split()  # noqa: SIM905
)
_FIRST_OPERAND_ONLY = frozenset({"dynamic-slice", "gather"})


def part_bytes(shape: Shape, elements: int) -> int:
    """Bytes of some of an array's elements; of all of them with the layout's padding."""
    if elements >= shape.num_elements:
        return shape.padded_bytes
    return -(-elements * shape.element_bits // 8)


Needs = Mapping[Computation, Mapping[int, int]]
"""Elements that a fusion inside a fusion needs of each operand, by its computation."""


def fusion_traffic(
    fusion: Instruction, repeats: frozenset[Instruction], nested: Needs
) -> FusionTraffic:
    """Follow the demand from the result back to the parameters; linear in its instructions.

    As in XLA's HloCostAnalysis nothing between parameters and result counts, a
    parameter that is only sliced counts its slices, and a result that updates
    a parameter in place counts the update. Beyond it, slices are also seen behind
    elementwise operations and gathers, overlapping ones count no more than the
    whole, sums that are needed in part read that part, and what is overwritten
    or handed on in place is not read: the sum is what must move, which is what
    a floor needs.

    Args:
        fusion: The fusion.
        repeats: Collectives that another instruction already stands for.
        nested: What the fusions inside it need.

    Raises:
        Unavailable: An array has no upper bound.
        IndexError: An instruction lacks an operand.
        ValueError: Its aliases cannot be read.
    """
    computation = fusion.called[0]
    demand: dict[Instruction, int] = {}
    in_place = _aliases(fusion)
    writes: list[tuple[Shape, int]] = []
    updated: dict[Instruction, list[int]] = {}
    for index, value in _results(computation):
        source, member = _behind_names(value)
        if source in repeats or (source.opcode == "parameter" and index in in_place):
            writes += [(leaf, 0) for leaf in value.shape.leaves() if leaf.is_array]
        elif _updates_in_place(source):
            if source not in updated:
                updated[source] = _update(source, demand)
            sizes = updated[source] if member is None else updated[source][member : member + 1]
            arrays = [leaf for leaf in value.shape.leaves() if leaf.is_array]
            writes += zip(arrays, sizes, strict=True)
        else:
            arrays = [leaf for leaf in value.shape.leaves() if leaf.is_array]
            _need(demand, value, sum(leaf.num_elements for leaf in arrays))
            writes += [(leaf, leaf.padded_bytes) for leaf in arrays]
    _spread(computation, demand, repeats, nested)
    reads = tuple(
        (leaf, part_bytes(leaf, demand.get(parameter, 0)))
        for parameter in computation.parameters
        for leaf in parameter.shape.leaves()
    )
    return FusionTraffic(reads, tuple(writes))


def _results(computation: Computation) -> list[tuple[tuple[int, ...], Instruction]]:
    root = computation.root
    if root.opcode != "tuple":
        return [((), root)]
    return [((index,), value) for index, value in enumerate(root.operands)]


def _aliases(fusion: Instruction) -> frozenset[tuple[int, ...]]:
    """Results that lie where an operand lies."""
    text = fusion.attributes.get("output_to_operand_aliasing")
    return _alias_indices(text) if text else frozenset()


@lru_cache(maxsize=256)
def _alias_indices(text: str) -> frozenset[tuple[int, ...]]:
    entries = split_list(text.strip()[1:-1])
    return frozenset(parse_integers(entry.partition(":")[0]) for entry in entries)


def _behind_names(value: Instruction) -> tuple[Instruction, int | None]:
    """What a value is another name of, and which member of it."""
    member = None
    while value.opcode in ("bitcast", "get-tuple-element") and value.operands:
        if value.opcode == "get-tuple-element":
            member = value.tuple_index
        value = value.operands[0]
    return value, member


def _updates_in_place(value: Instruction) -> bool:
    """Whether it changes part of a parameter and leaves the rest where it is."""
    if value.opcode not in ("dynamic-update-slice", "scatter"):
        return False
    return _behind_names(value.operands[0])[0].opcode == "parameter"


def _update(update: Instruction, demand: dict[Instruction, int]) -> list[int]:
    """Bytes written into each target; its operands are read, of a target what is added to."""
    if update.opcode == "dynamic-update-slice":
        for operand in update.operands[1:]:
            _need(demand, operand, operand.shape.num_elements)
        return [update.operands[1].shape.padded_bytes]
    targets = (len(update.operands) - 1) // 2
    for operand in update.operands[targets:]:
        _need(demand, operand, operand.shape.num_elements)
    written = []
    for target, new in zip(update.operands, update.operands[targets + 1 :], strict=False):
        size = min(new.shape.num_elements, target.shape.num_elements)
        _need(demand, target, size)
        written.append(part_bytes(target.shape, size))
    return written


def _need(demand: dict[Instruction, int], value: Instruction, elements: int) -> None:
    demand[value] = demand.get(value, 0) + elements


def _spread(
    computation: Computation,
    demand: dict[Instruction, int],
    repeats: frozenset[Instruction],
    nested: Needs,
) -> None:
    """Hand each instruction's demand to its operands, users before what they use."""
    for value in reversed(computation.instructions):
        wanted = demand.get(value, 0)
        if not wanted or not value.operands or value in repeats:
            continue
        opcode = value.opcode
        if value.shape.is_array:
            wanted = min(wanted, value.shape.num_elements)
        inner = nested.get(value.called[0]) if opcode == "fusion" and value.called else None
        for place, operand in enumerate(value.operands):
            whole = sum(leaf.num_elements for leaf in operand.shape.leaves())
            if inner is not None:
                needed = inner.get(place, whole)
            elif opcode in _ELEMENT_BY_ELEMENT and (
                place == 0 or opcode not in _FIRST_OPERAND_ONLY
            ):
                needed = wanted
            elif opcode == "reduce" and place == 0 and value.shape.is_array:
                # Each element of the result sums as many of the operand.
                needed = -(-whole * wanted // max(value.shape.num_elements, 1))
            else:
                needed = whole
            _need(demand, operand, min(needed, whole))


def _nested_needs(computations: Iterable[Computation]) -> Needs:
    """What fusions inside fusions need, all their results being needed.

    Args:
        computations: Theirs, callees before callers.
    """
    found: dict[Computation, Mapping[int, int]] = {}
    for computation in computations:
        demand: dict[Instruction, int] = {}
        for _, value in _results(computation):
            _need(demand, value, sum(leaf.num_elements for leaf in value.shape.leaves()))
        _spread(computation, demand, frozenset(), found)
        found[computation] = {
            parameter.parameter_number or 0: demand.get(parameter, 0)
            for parameter in computation.parameters
        }
    return found


def needs_inside(graph: CallGraph, execution: Execution) -> Needs:
    """What the fusions inside of launched fusions need, of a whole program."""
    inside = {
        call.callee
        for computation in execution.enclosing
        for call in graph.calls[computation]
        if call.caller.opcode == "fusion"
    }
    return _nested_needs(computation for computation in graph.order if computation in inside)
