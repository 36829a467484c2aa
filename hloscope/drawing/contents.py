"""What a launched instruction is, in the few words that fit a box."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Shape
from hloscope.passes.flops.custom_calls import NoProducts, read_custom_call
from hloscope.passes.step_parts import is_replay

__all__ = [
    "Weight",
    "array_text",
    "contents",
    "inside",
    "is_counter",
    "rebuilt_inside",
    "weight_of",
]

_PRODUCTS = frozenset(("dot", "convolution", "ragged-dot", "scaled-dot", "triangular-solve"))
_FUNCTIONS = frozenset(
    """
    atan2 cbrt cosine erf exponential exponential-minus-one log log-plus-one logistic power
    sine tan tanh
    """.split()  # noqa: SIM905
)
_STEPS = frozenset(
    """
    all-gather all-gather-start all-reduce all-reduce-start all-to-all collective-permute
    collective-permute-start cholesky dynamic-update-slice fft gather reduce reduce-scatter
    reduce-window rng rng-bit-generator rsqrt scatter select-and-scatter sort sqrt
    """.split()  # noqa: SIM905
)
_SILENT = frozenset(
    """
    bitcast broadcast constant convert copy dynamic-slice get-tuple-element iota parameter
    reshape slice transpose tuple
    """.split()  # noqa: SIM905
)
_COUNTERS = frozenset(("pred", "s32", "s64", "u32", "u64"))
_SHOWN = 3
_CHARACTERS = 25
_DEEPEST = 4


class Weight(IntEnum):
    """How much a reader wants to see an instruction, least first."""

    MOVES = 0  # casts, copies, slices: the same numbers in another form
    ELEMENTWISE = 1
    STEPS = 2  # reductions, gathers, exchanges
    FUNCTIONS = 3  # tanh, exp and the like
    PRODUCTS = 4


def inside(instruction: Instruction, depth: int = _DEEPEST) -> Iterator[Instruction]:
    """The instruction, or of a fusion everything in it, nested ones too."""
    if instruction.opcode != "fusion" or not depth:
        yield instruction
        return
    for computation in instruction.called:
        for each in computation.instructions:
            yield from inside(each, depth - 1)


def weight_of(instruction: Instruction) -> Weight:
    """By the most telling instruction in it."""
    return max((_weight(each) for each in inside(instruction)), default=Weight.MOVES)


def is_counter(instruction: Instruction) -> bool:
    """Whether it only counts or compares: a whole number, or whether something holds."""
    shape = instruction.shape
    return shape.is_array and not shape.rank and shape.dtype in _COUNTERS


def _weight(instruction: Instruction) -> Weight:
    opcode = instruction.opcode
    if _is_silent(instruction):
        return Weight.MOVES
    if opcode == "custom-call":
        return _call_weight(instruction)
    if opcode in _PRODUCTS:
        return Weight.PRODUCTS
    if opcode in _FUNCTIONS:
        return Weight.FUNCTIONS
    if opcode in _STEPS:
        return Weight.STEPS
    return Weight.ELEMENTWISE


def _call_weight(instruction: Instruction) -> Weight:
    """By what the target is known for; what is not known may be anything."""
    try:
        known = read_custom_call(instruction)
    except (IndexError, ValueError, Unavailable):
        return Weight.PRODUCTS
    if not isinstance(known, NoProducts):
        return Weight.PRODUCTS
    return Weight.FUNCTIONS if known.arithmetic else Weight.MOVES


def _is_silent(instruction: Instruction) -> bool:
    """Whether it says little: it only moves numbers, or counts a loop's iterations."""
    return instruction.opcode in _SILENT or is_counter(instruction)


def contents(instruction: Instruction) -> str:
    """Opcode, of a fusion the opcodes that matter most in it: ``tanh, multiply, ...``.

    Of a custom call it is its target.
    """
    if instruction.opcode == "custom-call":
        return instruction.custom_call_target or "custom-call"
    if instruction.opcode != "fusion":
        return instruction.opcode
    return _listed(inside(instruction)) or "fusion"


def rebuilt_inside(instruction: Instruction) -> str:
    """What a fusion of the backward pass computes again by itself, by its inner names."""
    if instruction.opcode != "fusion":
        return ""
    again = [each for each in inside(instruction) if is_replay(each)]
    if max(map(_weight, again), default=Weight.MOVES) < Weight.ELEMENTWISE:
        return ""
    return _listed(again, _CHARACTERS - len("again: "))


def _listed(
    instructions: Iterator[Instruction] | list[Instruction], characters: int = _CHARACTERS
) -> str:
    weights: dict[str, Weight] = {}
    quiet: dict[str, None] = {}
    for each in instructions:
        opcode = each.opcode
        if opcode == "custom-call":
            opcode = each.custom_call_target or opcode
        if _is_silent(each):
            quiet[opcode] = None
        else:
            weights[opcode] = max(weights.get(opcode, Weight.MOVES), _weight(each))
    order = sorted(weights, key=lambda opcode: -weights[opcode])  # stable: first met first
    if not order:
        told = [o for o in quiet if o not in ("parameter", "constant", "tuple", "bitcast")]
        order = told or list(quiet)[-1:]
    shown = order[:1]
    for opcode in order[1:_SHOWN]:
        if len(", ".join((*shown, opcode))) > characters:
            break
        shown.append(opcode)
    return ", ".join(shown) + (", ..." if len(order) > len(shown) else "")


def array_text(shape: Shape) -> str:
    """Type and sizes, the layout left out; of a tuple its first member and how many more."""
    leaves = shape.leaves()
    if not leaves:
        return "()"
    first = str(leaves[0].without_layout())
    return first if len(leaves) == 1 else f"{first} +{len(leaves) - 1}"
