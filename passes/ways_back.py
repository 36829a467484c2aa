"""From a value back to where it is computed, through what only moves it."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.ir import Instruction
from hloscope.passes.call_graph import CallGraph, CallKind

__all__ = ["origin_of", "way_back"]

_MOVES = frozenset(
    "bitcast convert copy copy-done copy-start opt-barrier reshape transpose".split()  # noqa: SIM905
)
_MAX_STEPS = 60


def way_back(value: Instruction, graph: CallGraph) -> Iterator[Instruction]:
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


def origin_of(value: Instruction, graph: CallGraph) -> Instruction:
    """The instruction that a value is a rearrangement of."""
    for step in way_back(value, graph):
        value = step
    return value
