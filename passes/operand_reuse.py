"""Results that may be written where an operand lies that nothing reads afterwards.

XLA's heap simulation lets an elementwise operation overwrite its operand as it
goes (``HloDataflowAnalysis::CanShareOperandBufferWithUser``; a sort its keys and
values as well), if both have the same shape and layout and the operand is defined by the
instruction that is named: behind a bitcast or an element of a tuple it is not.
"""

from __future__ import annotations

from hloscope.ir import Computation, Instruction

__all__ = ["ELEMENTWISE", "OVERWRITING", "ElementwiseParameters", "may_overwrite"]

ELEMENTWISE = frozenset(
    """
    abs add and atan2 cbrt ceil clamp clz compare complex convert cosine divide erf exponential
    exponential-minus-one floor imag is-finite log log-plus-one logistic map maximum minimum
    multiply negate not or popcnt power real reduce-precision remainder round-nearest-afz
    round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign
    sine sqrt subtract tan tanh xor
    """.split()  # noqa: SIM905
)


OVERWRITING = ELEMENTWISE | {"fusion", "sort", "triangular-solve"}
"""What may write a result where an operand lies."""


class ElementwiseParameters:
    """Which parameters of fusions are used element by element only."""

    def __init__(self) -> None:
        self._known: dict[Computation, tuple[bool, ...]] = {}

    def __call__(self, body: Computation, number: int) -> bool:
        """Whether the value of a parameter reaches elementwise operations and results alone."""
        found = self._known.get(body)
        if found is None:
            found = self._known[body] = _elementwise(body)
        return number < len(found) and found[number]


def may_overwrite(
    user: Instruction, operand: int, parameters: ElementwiseParameters, *, result: int = 0
) -> bool:
    """Whether a result of ``user`` can be written over the operand of that number.

    Args:
        user: Reads the operand for the last time.
        operand: Its number.
        parameters: What is known of fusions.
        result: The place of the result among the results.
    """
    if user.opcode == "sort":
        return operand == result
    if user.opcode == "triangular-solve":
        return operand == 1
    if user.opcode == "fusion":
        body = user.callee("calls")
        return body is not None and parameters(body, operand)
    return user.opcode in ELEMENTWISE and (
        user.operands[operand].shape.dimensions == user.shape.dimensions
    )


def _elementwise(body: Computation) -> tuple[bool, ...]:
    """From the last instruction to the first: a value is as good as its users are."""
    good: dict[Instruction, bool] = {}
    for value in body.instructions:
        good[value] = True
    for user in reversed(body.instructions):
        for operand in user.operands:
            if user.opcode == "tuple":
                fine = True
            else:
                fine = (
                    user.opcode in ELEMENTWISE
                    and operand.shape.dimensions == user.shape.dimensions
                    and good[user]
                )
            if not fine and operand in good:
                good[operand] = False
    return tuple(good[parameter] for parameter in body.parameters)
