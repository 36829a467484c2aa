"""Where a value comes from, looking through everything that only moves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.pipeline.analyses import analysis

__all__ = ["Origins", "moves", "trace_origins"]

_MAX_STEPS = 300

# The result holds elements of operand 0 and nothing else (a pad also its padding value).
_MOVES = frozenset(
    """
    add-dependency all-gather all-to-all bitcast broadcast collective-permute copy copy-done
    copy-start dynamic-slice gather opt-barrier pad reduce-precision reshape reverse slice transpose
    """.split()  # noqa: SIM905
)
_EXCHANGES = frozenset({"all-gather", "all-to-all", "collective-permute"})
_MOVING_CALLS = frozenset({"Sharding", "MoveToDevice", "MoveToHost"})


@dataclass(frozen=True, slots=True)
class Origins:
    """Follows values backwards through data movement, tuples, fusions and loops.

    Attributes:
        callers: The calls of each computation.
    """

    callers: Mapping[Computation, tuple[Call, ...]]
    _known: dict[Instruction, tuple[Instruction, bool]] = field(default_factory=dict, repr=False)

    def of(self, value: Instruction) -> Instruction:
        """The instruction that made a value's elements.

        Conversions end the way, as do loops that change the value, computations
        that several places call, and entry parameters.
        """
        return self._way(value)[0]

    def exchanged(self, value: Instruction) -> bool:
        """Whether devices exchange the value on the way from its origin."""
        return self._way(value)[1]

    def _way(self, value: Instruction) -> tuple[Instruction, bool]:
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._trace(value)
        return found

    def _trace(self, value: Instruction) -> tuple[Instruction, bool]:
        """The origin, and whether an exchange lies before it.

        Tuples are tracked by ``path``: the indices still to be taken of the value.
        """
        path: tuple[int, ...] = ()
        exchanged = False
        for _ in range(_MAX_STEPS):
            opcode, operands = value.opcode, value.operands
            if opcode == "get-tuple-element" and operands:
                path = (value.tuple_index or 0, *path)
                value = operands[0]
            elif opcode == "tuple" and path and path[0] < len(operands):
                value, path = operands[path[0]], path[1:]
            elif operands and moves(value):
                exchanged = exchanged or opcode in _EXCHANGES
                value = operands[0]
            elif opcode in ("fusion", "call") and value.called:
                value = value.called[0].root
            elif opcode == "while" and path and _hands_on(value, path[0]) and operands:
                value = operands[0]
            elif opcode == "parameter":
                outer = self._handed_in(value, path)
                if outer is None:
                    break
                value = outer
            else:
                break
        return value, exchanged

    def _handed_in(self, parameter: Instruction, path: tuple[int, ...]) -> Instruction | None:
        """What a parameter stands for, where one place calls its computation.

        A loop's tuple is followed out of the loop where the body hands the
        element on untouched.
        """
        calls = self.callers.get(parameter.computation, ())
        if len(calls) != 1:
            return None
        call = calls[0]
        number = parameter.parameter_number or 0
        if call.kind is CallKind.ONCE and call.caller.opcode != "conditional":
            operands = call.caller.operands
            return operands[number] if number < len(operands) else None
        if call.kind is CallKind.BODY and path and _hands_on(call.caller, path[0]):
            return call.caller.operands[0] if call.caller.operands else None
        return None


@analysis
def trace_origins(graph: CallGraph) -> Origins:
    """Prepare to follow values; each is followed when it is first asked for."""
    return Origins(graph.callers)


def moves(value: Instruction) -> bool:
    """Whether it hands its first operand on; a copy-start is reached through copy-done."""
    if value.opcode == "custom-call":
        return value.custom_call_target in _MOVING_CALLS
    return value.opcode in _MOVES or _drops_ones(value)


def _drops_ones(value: Instruction) -> bool:
    """Whether it is a reduction over dimensions of size one, as TPU compilers squeeze."""
    if value.opcode != "reduce" or len(value.operands) != 2:
        return False
    dimensions = value.operands[0].shape.dimensions
    return all(dimensions[axis] == 1 for axis in value.dimensions if axis < len(dimensions))


def _hands_on(loop: Instruction, index: int) -> bool:
    """Whether every run of a loop's body hands an element of its tuple on untouched."""
    body = loop.callee("body")
    if body is None or not body.parameters:
        return False
    element = _element(body.root, index)
    return element is not None and _same_element(element, body.parameters[0], index)


def _element(root: Instruction, index: int) -> Instruction | None:
    if root.opcode != "tuple" or index >= len(root.operands):
        return None
    value = root.operands[index]
    while value.opcode in ("copy", "bitcast") and value.operands:
        value = value.operands[0]
    return value


def _same_element(value: Instruction, parameter: Instruction, index: int) -> bool:
    return (
        value.opcode == "get-tuple-element"
        and value.operands == (parameter,)
        and value.tuple_index == index
    )
