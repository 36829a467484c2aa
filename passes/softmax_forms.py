"""What tells a softmax, and the gradient of one, from other element-by-element work."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hloscope.ir import Instruction
from hloscope.passes.element_flow import MOVES, ElementFlow, num_elements

__all__ = ["softmax_gradient_sum", "softmax_sum"]

_MOST_VISITED = 20_000
_MOST_STEPS = 60
_THROUGH = frozenset({"parameter", "fusion", "call", "get-tuple-element"})
_SCALED = frozenset({"bitcast", "convert", "copy", "multiply", "divide", "negate", "reshape"})


def softmax_sum(reached: Collection[Instruction], flow: ElementFlow) -> Instruction | None:
    """The sum of exponentials among values, as a softmax has one.

    Args:
        reached: What is computed of the scores element by element.
        flow: Follows values through fusions.
    """
    sums = (_sum_of(value, flow) for value in reached if value.opcode == "exponential")
    return next((found for found in sums if found is not None), None)


def _sum_of(value: Instruction, flow: ElementFlow) -> Instruction | None:
    """The sum of a value as it is, at most converted, masked or moved."""
    pending, seen = [value], {value}
    while pending and len(seen) < _MOST_VISITED:
        current = pending.pop()
        for user in flow.users(current):
            if _adds_up(user) and user.operands[0] is current:
                return user
            if user not in seen and (user.opcode in MOVES or user.opcode in _THROUGH):
                seen.add(user)
                pending.append(user)
    return None


def softmax_gradient_sum(reached: Collection[Instruction], flow: ElementFlow) -> Instruction | None:
    """The sum in a softmax's gradient among what is computed of the probabilities' gradient.

    With probabilities ``p`` and their gradient ``d`` the gradient of the scores is
    ``p * (d - sum(p * d))``, or ``p * d - p * sum(p * d)``. The same ``p`` inside of the
    sum and on what it is subtracted from tells it from the gradients of norms, of which
    the sum is multiplied by ``p`` and the rest is not, or the other way round.

    Args:
        reached: What is computed of the second product element by element.
        flow: Follows values through fusions.
    """
    for value in reached:
        if value.opcode not in ("add", "subtract"):
            continue
        for side, other in (value.operands, reversed(value.operands)):
            for total in _spread_sums(other, flow):
                weights = _weights(total.operands[0], reached, flow)
                if not weights:
                    continue
                if _weights(other, reached, flow) & weights:
                    if _weights(side, reached, flow) & weights:
                        return total
                elif _is_multiplied(value, weights, flow):
                    return total
    return None


def _is_multiplied(value: Instruction, weights: frozenset[object], flow: ElementFlow) -> bool:
    reached = flow.onwards(value)
    return any(
        _weights(one, reached, flow) & weights for one in reached if one.opcode == "multiply"
    )


def _weights(
    value: Instruction, reached: Collection[Instruction], flow: ElementFlow
) -> frozenset[object]:
    """What a product of arrays has for factors, but for those that come from ``reached``.

    An exponential stands for its like: XLA computes one again in each fusion that reads it.
    """
    found: set[object] = set()
    pending, seen = [value], {value}
    while pending and len(seen) < _MOST_VISITED:
        current = pending.pop()
        if current.opcode in ("multiply", "divide"):
            further = list(
                current.operands if current.opcode == "multiply" else current.operands[:1]
            )
        elif current.opcode in MOVES or current.opcode in (*_THROUGH, "negate"):
            further = list(flow.before(current))
        else:
            further = []
        further = [one for one in further if num_elements(one) == num_elements(value)]
        if not further and current.opcode not in ("broadcast", "constant", "iota"):
            if current.opcode == "exponential":
                found.add(current.opcode)
            elif current not in reached:
                found.add(current)
        for one in further:
            if one not in seen:
                seen.add(one)
                pending.append(one)
    return frozenset(found)


def _spread_sums(value: Instruction, flow: ElementFlow) -> Iterator[Instruction]:
    """Sums that are spread out again to a value, or to a factor of it."""
    pending, seen = [value], {value}
    while pending and len(seen) < _MOST_VISITED:
        current = pending.pop()
        if current.opcode == "broadcast" and current.operands:
            total = _sum_behind(current.operands[0], flow)
            if total is not None:
                yield total
            continue
        further = (
            current.operands
            if current.opcode in ("multiply", "divide", "negate")
            else flow.before(current)
            if current.opcode in MOVES or current.opcode in _THROUGH
            else ()
        )
        for one in further:
            if one not in seen and num_elements(one) == num_elements(value):
                seen.add(one)
                pending.append(one)


def _sum_behind(value: Instruction, flow: ElementFlow) -> Instruction | None:
    """The sum over an array that a smaller one is a multiple of; of several stages the first."""
    found = None
    for _ in range(_MOST_STEPS):
        if _adds_up(value):
            found = value
            value = value.operands[0]
            continue
        before = [one for one in flow.before(value) if one.shape.is_array and one.shape.rank]
        if (value.opcode not in _SCALED and value.opcode not in _THROUGH) or len(before) != 1:
            return found
        value = before[0]
    return found


def _adds_up(value: Instruction) -> bool:
    return (
        value.opcode == "reduce"
        and len(value.operands) == 2
        and any(called.root.opcode == "add" for called in value.called)
    )
