"""Work that a program spells out many times over, as an unrolled loop over layers does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction, Shape
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.execution import Execution
from hloscope.pipeline.analyses import analysis

__all__ = ["RepeatedBlocks", "find_repeated_blocks"]

_FEWEST = 4
_TOLERANCE = 8  # for so many layers one may be more or less
_NAMES = frozenset(("bitcast", "constant", "get-tuple-element", "parameter", "tuple"))
_STRUCTURE = (
    *("dimensions", "direction", "lhs_contracting_dims", "rhs_contracting_dims"),
    *("lhs_batch_dims", "rhs_batch_dims", "window", "dim_labels", "feature_group_count"),
    *("slice", "dynamic_slice_sizes", "padding", "custom_call_target", "kind"),
)
_CALLS_INSIDE = ("fusion", "reduce", "reduce-window", "scatter", "sort", "map", "all-reduce")


@dataclass(frozen=True, slots=True)
class RepeatedBlocks:
    """How much of a program is one block over and over.

    Attributes:
        times: How often the block stands there; 1 where nothing repeats.
        instructions: Instructions of the program, those of what it calls included.
        example: The largest of the instructions that repeat, in its first copy.
        alike: By how often equal instructions stand there, how many those are.
    """

    times: int
    instructions: int
    example: Instruction | None
    alike: Mapping[int, int]

    @property
    def saved(self) -> float:
        """The part of the program that would not be there if a loop ran over one block."""
        return self.saved_by(self.times)

    def saved_by(self, times: int) -> float:
        """The same of a loop that is known to run over so many blocks."""
        repeated = _in_blocks(self.alike, times)
        return repeated * (1 - 1 / times) / self.instructions if self.instructions else 0.0


@analysis
def find_repeated_blocks(graph: CallGraph, execution: Execution) -> RepeatedBlocks:
    """Find the number of repetitions that explains most of the program; linear.

    Two instructions do the same where opcode, shapes, attributes and the
    structure of what they call agree. In an unrolled loop over layers each
    instruction of a layer occurs as often as there are layers or a multiple of
    that; a few more or less where the first or last layer differs or something
    beside the layers looks like a part of them. The number of layers is the one
    with which a loop would save most instructions.
    """
    sizes: dict[Computation, int] = {}
    digests: dict[Computation, int] = {}
    for computation in graph.order:
        digests[computation] = _digest(computation, digests)
        sizes[computation] = sum(
            1 + _inside(instruction, sizes) for instruction in computation.instructions
        )
    groups: defaultdict[tuple[Computation, int], list[Instruction]] = defaultdict(list)
    total = 0
    for computation in execution.order:
        for instruction in computation.instructions:
            total += 1 + _inside(instruction, sizes)
            if instruction.opcode not in _NAMES:
                groups[computation, _key(instruction, digests)].append(instruction)
    weights: Counter[int] = Counter()
    for members in groups.values():
        weights[len(members)] += len(members) * (1 + _inside(members[0], sizes))
    times = _repetitions(weights)
    if times is None:
        return RepeatedBlocks(1, total, None, weights)
    chosen = [members for members in groups.values() if _is_about_a_multiple(len(members), times)]
    example = max(chosen, key=lambda m: (m[0].location is not None, m[0].shape.bytes))
    return RepeatedBlocks(times, total, example[0], weights)


def _repetitions(weights: Mapping[int, int]) -> int | None:
    """The number of blocks of which keeping one saves most instructions."""
    candidates = [number for number in weights if number >= _FEWEST]
    if not candidates:
        return None

    def saved(times: int) -> float:
        return _in_blocks(weights, times) * (1 - 1 / times)

    return max(candidates, key=lambda times: (saved(times), times))


def _in_blocks(weights: Mapping[int, int], times: int) -> int:
    """Instructions that would stand in so many blocks."""
    return sum(w for number, w in weights.items() if _is_about_a_multiple(number, times))


def _is_about_a_multiple(number: int, times: int) -> bool:
    """Whether something that occurs so often occurs in each block, the first or last apart."""
    off = times // _TOLERANCE
    return number >= times - off and (number % times <= off or -number % times <= off)


def _inside(instruction: Instruction, sizes: Mapping[Computation, int]) -> int:
    """Instructions of what is no launch of its own: a fusion's body, a reducer."""
    if instruction.opcode not in _CALLS_INSIDE:
        return 0
    return sum(sizes.get(callee, 0) for callee in instruction.called)


def _digest(computation: Computation, digests: Mapping[Computation, int]) -> int:
    places = {instruction: n for n, instruction in enumerate(computation.instructions)}
    return hash(
        tuple(
            (_key(instruction, digests), *(places.get(o, -1) for o in instruction.operands))
            for instruction in computation.instructions
        )
    )


def _key(instruction: Instruction, digests: Mapping[Computation, int]) -> int:
    attributes = instruction.attributes
    return hash(
        (
            instruction.opcode,
            _shape(instruction.shape),
            tuple(_shape(operand.shape) for operand in instruction.operands),
            tuple(attributes.get(name) for name in _STRUCTURE),
            tuple(digests.get(callee, 0) for callee in instruction.called),
        )
    )


def _shape(shape: Shape) -> object:
    return (shape.dtype, shape.dimensions) if not shape.is_tuple else str(shape)
