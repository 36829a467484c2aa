"""Follows an array through operations that keep its number of elements, in and out of fusions.

What XLA adds so that a matrix unit's tiles fit, zeros at the end of a dimension, and what
takes them off again, is followed too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import Call, CallKind

__all__ = ["MOST_PADDED", "MOVES", "ElementFlow", "num_elements"]

_ELEMENT_BY_ELEMENT = frozenset(
    """
    add bitcast clamp compare convert copy copy-done divide exponential multiply maximum minimum
    negate opt-barrier reduce-precision reshape select subtract tanh transpose
    """.split()  # noqa: SIM905
)
MOVES = frozenset({"bitcast", "convert", "copy", "copy-done", "reshape", "select", "transpose"})
"""Operations that leave an element as it is, put it elsewhere or mask it."""
_RESIZED = frozenset({"pad", "slice"})
_MOST_VISITED = 20_000  # instructions between two products; softmax takes a few dozen
MOST_PADDED = 1.25
"""Elements with XLA's padding by those without, at most."""


class ElementFlow:
    """Follows an array through what keeps its elements, in and out of fusions."""

    def __init__(self, callers: Mapping[Computation, tuple[Call, ...]]) -> None:
        self.callers = callers

    def onwards(self, start: Instruction) -> list[Instruction]:
        """The start and all that is computed of it element by element."""
        return self._closure([start], back=False)

    def around(self, starts: list[Instruction]) -> frozenset[Instruction]:
        """The starts, all that is computed of them and all that it is computed with."""
        return frozenset(self._closure(starts, back=True))

    def _closure(self, starts: list[Instruction], *, back: bool) -> list[Instruction]:
        pending, seen = list(starts), dict.fromkeys(starts)
        products = set(starts)
        while pending and len(seen) < _MOST_VISITED:
            current = pending.pop()
            onwards = [
                user
                for user in self.users(current)
                if user.opcode in _ELEMENT_BY_ELEMENT
                or user.opcode in _RESIZED
                or user.computation is not current.computation
                or user.opcode in ("get-tuple-element", "copy-start")
            ]
            if back and current not in products:
                onwards += self.before(current)
            for value in onwards:
                if value not in seen and _keeps_elements(current, value):
                    seen[value] = None
                    pending.append(value)
        return list(seen)

    def users(self, value: Instruction) -> Iterator[Instruction]:
        """Users, with a fusion's parameter for the fusion and its caller after the root."""
        for user in value.users:
            if user.opcode in ("fusion", "call") and user.called:
                parameters = user.called[0].parameters
                for place, operand in enumerate(user.operands):
                    if operand is value and place < len(parameters):
                        yield parameters[place]
            elif user.opcode == "tuple" and user.is_root:
                caller = self._caller(user)
                if caller is not None:
                    at = [place for place, one in enumerate(user.operands) if one is value]
                    yield from (gte for gte in caller.users if gte.tuple_index in at)
            elif user.opcode == "copy-start":
                yield from user.users
            else:
                yield user
        if value.is_root and value.shape.is_array:
            caller = self._caller(value)
            if caller is not None:
                yield caller

    def before(self, value: Instruction) -> Iterator[Instruction]:
        """What a value is computed of element by element, out of and into fusions."""
        opcode, operands = value.opcode, value.operands
        if opcode in _ELEMENT_BY_ELEMENT:
            for operand in operands:
                if operand.opcode == "copy-start" and operand.operands:
                    yield operand.operands[0]
                elif operand.opcode not in ("broadcast", "iota", "constant"):
                    yield operand
        elif opcode in _RESIZED:
            yield from operands[:1]
        elif opcode == "parameter":
            caller = self._caller(value)
            number = value.parameter_number or 0
            if caller is not None and number < len(caller.operands):
                yield caller.operands[number]
        elif opcode in ("fusion", "call") and value.called:
            yield value.called[0].root
        elif (
            opcode == "get-tuple-element"
            and operands
            and operands[0].opcode == "fusion"
            and operands[0].called
        ):
            root = operands[0].called[0].root
            index = value.tuple_index or 0
            if root.opcode == "tuple" and index < len(root.operands):
                yield root.operands[index]

    def _caller(self, inside: Instruction) -> Instruction | None:
        calls = self.callers.get(inside.computation, ())
        if len(calls) == 1 and calls[0].kind is CallKind.ONCE:
            caller = calls[0].caller
            return caller if caller.opcode in ("fusion", "call") else None
        return None


def _keeps_elements(one: Instruction, other: Instruction) -> bool:
    """Whether two neighbours hold the same elements, at most with zeros behind them."""
    sizes = num_elements(one), num_elements(other)
    if sizes[0] == sizes[1]:
        return True
    resized = [each for each in (one, other) if each.opcode in _RESIZED]
    if min(sizes) < 1 or max(sizes) > MOST_PADDED * min(sizes):
        return False
    return any(_at_the_end(each) and set(each.operands) & {one, other} for each in resized)


def _at_the_end(resized: Instruction) -> bool:
    """Whether a pad adds, or a slice takes away, at the end of dimensions alone."""
    if resized.opcode == "slice":
        return all(each.start == 0 and each.stride == 1 for each in resized.slices)
    return all(low == 0 <= high and inner == 0 for low, high, inner in resized.padding)


def num_elements(value: Instruction) -> int:
    """Elements of an array; of a library call's result without its workspace."""
    shape = value.shape
    if shape.is_tuple and value.opcode == "custom-call" and shape.elements:
        shape = shape.elements[0]
    return shape.num_elements if shape.is_array else -1
