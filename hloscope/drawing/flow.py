"""Which instruction reads what which other made, across tuples, calls and loops.

Between the one that computes an array and the one that reads it a module has
tuples, their elements, bitcasts, copies, barriers, and the carried values of
loops. The flow leaves all of these out, element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import networkx as nx

from hloscope.ir import Computation, Instruction, Shape
from hloscope.passes.call_graph import Call, CallKind
from hloscope.passes.execution import CONTROL, Execution
from hloscope.pipeline.analyses import analysis

__all__ = ["Flow", "Value", "find_flow", "shape_at"]

_HANDED_ON = frozenset(
    ("add-dependency", "bitcast", "copy", "copy-done", "copy-start", "domain", "opt-barrier")
)
_WITHOUT_INDEX = frozenset(("copy-start", "copy-done"))
_CALLS = frozenset(("call", "conditional", "while", "async-done", "async-update"))

Index = tuple[int, ...]
Value = tuple[Instruction, Index]
"""One array: what makes it, and where in that instruction's result it is."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The graph of what computes and what reads it.

    Attributes:
        graph: Nodes are instructions: those that are launched, the entry's
            parameters, and values that a loop carries. An edge's ``arrays``
            are the indices into the source's result that the target reads.
        carried: Nodes that stand for a value which a loop carries: the element
            of the body's parameter.
        entry: Where execution starts.
    """

    graph: nx.DiGraph[Instruction]
    carried: frozenset[Instruction]
    entry: Computation

    def readers(self, instruction: Instruction) -> Iterator[Instruction]:
        """What reads a node's arrays, in a fixed order."""
        return iter(self.graph.successors(instruction))

    def makers(self, instruction: Instruction) -> Iterator[Instruction]:
        """What makes the arrays that a node reads, in the order of its operands."""
        return iter(self.graph.predecessors(instruction))

    def arrays(self, source: Instruction, target: Instruction) -> tuple[Index, ...]:
        """Which of the source's arrays the target reads."""
        found: dict[Index, None] = self.graph.edges[source, target]["arrays"]
        return tuple(found)


def shape_at(shape: Shape, index: Index) -> Shape:
    """The member of a tuple's shape; what the index does not reach is left whole."""
    for position in index:
        if position >= len(shape.elements):
            break
        shape = shape.elements[position]
    return shape


@analysis
def find_flow(execution: Execution) -> Flow:
    """Resolve every operand of everything that is launched; linear in what is handed on."""
    return _Resolution(execution).run()


class _Resolution:
    """Follows values back to what makes them, remembering each."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._calls: dict[Computation, list[Call]] = {}
        for calls in execution.calls.values():
            for call in calls:
                self._calls.setdefault(call.callee, []).append(call)
        self._known: dict[Value, tuple[Value, ...]] = {}
        self._carried: dict[Instruction, None] = {}
        self._elements: dict[Instruction, Mapping[int, Instruction]] = {}

    def run(self) -> Flow:
        graph: nx.DiGraph[Instruction] = nx.DiGraph()
        for computation in reversed(self._execution.order):
            for instruction in computation.instructions:
                if not _is_node(instruction):
                    continue
                graph.add_node(instruction)
                for operand in instruction.operands:
                    for maker, index in self.makers((operand, ())):
                        if maker.opcode == "constant":
                            continue
                        if graph.has_edge(maker, instruction):
                            graph.edges[maker, instruction]["arrays"][index] = None
                        else:
                            graph.add_edge(maker, instruction, arrays={index: None})
        carried = frozenset(node for node in self._carried if node in graph)
        return Flow(graph, carried, self._execution.order[-1])

    def makers(self, value: Value) -> tuple[Value, ...]:
        """What computes a value: several where branches or iterations meet."""
        known = self._known.get(value)
        if known is not None:
            return known
        found: dict[Value, None] = {}
        seen = {value}
        work = [value]
        while work:
            here = work.pop()
            behind = self._step(here)
            if behind is None:
                found[here] = None
                continue
            for each in reversed(behind):
                if each[0] in self._carried:
                    found[each] = None  # this may be the value that the way began with
                elif each not in seen:
                    seen.add(each)
                    work.append(each)
        result = self._known[value] = tuple(found)
        return result

    def _step(self, value: Value) -> list[Value] | None:
        """The values that this one is a name for; ``None`` where it is made here."""
        instruction, index = value
        opcode = instruction.opcode
        if opcode == "tuple":
            if index:
                inside = instruction.operands[index[0] : index[0] + 1]
                return [(operand, index[1:]) for operand in inside]
            return [(operand, ()) for operand in instruction.operands]
        if opcode == "get-tuple-element":
            if instruction in self._carried:
                return None
            inner = (instruction.tuple_index or 0, *index)
            return [(operand, inner) for operand in instruction.operands[:1]]
        if opcode in _HANDED_ON or (opcode.endswith("-done") and opcode != "async-done"):
            if not instruction.operands:
                return []
            handed = () if opcode in _WITHOUT_INDEX else index
            return [(instruction.operands[0], handed)]
        if opcode == "parameter":
            return self._of_caller(instruction, index)
        if opcode in _CALLS:
            return self._of_callee(instruction, index)
        return None

    def _of_caller(self, parameter: Instruction, index: Index) -> list[Value] | None:
        computation = parameter.computation
        if computation.is_entry:
            return None
        behind: list[Value] = []
        for call in self._calls.get(computation, ()):
            caller, number = call.caller, parameter.parameter_number or 0
            if call.kind in (CallKind.BODY, CallKind.CONDITION) and caller.opcode == "while":
                behind += self._of_loop(caller, parameter, index)
            elif call.kind is CallKind.BRANCH:
                behind += [(o, index) for o in caller.operands[call.position + 1 :][:1]]
            else:
                behind += [(o, index) for o in caller.operands[number : number + 1]]
        return behind

    def _of_loop(self, loop: Instruction, parameter: Instruction, index: Index) -> list[Value]:
        if not index:
            return []
        body = loop.callee("body")
        if body is None or _passes_on(body, index[0]):
            return [(operand, index) for operand in loop.operands[:1]]
        element = self._element(parameter, index[0])
        if element is None:
            return []
        self._carried[element] = None
        return [(element, index[1:])]

    def _element(self, parameter: Instruction, position: int) -> Instruction | None:
        """The first instruction that takes that element of a loop's parameter."""
        elements = self._elements.get(parameter)
        if elements is None:
            found: dict[int, Instruction] = {}
            for user in parameter.users:
                if user.opcode == "get-tuple-element":
                    found.setdefault(user.tuple_index or 0, user)
            elements = self._elements[parameter] = found
        return elements.get(position)

    def _of_callee(self, instruction: Instruction, index: Index) -> list[Value] | None:
        if instruction.opcode == "while":
            body = instruction.callee("body")
            if body is None:
                return None
            if index and _passes_on(body, index[0]):
                return [(operand, index) for operand in instruction.operands[:1]]
            return [(body.root, index)] if index else []
        start = instruction
        while start.opcode in ("async-done", "async-update") and start.operands:
            start = start.operands[0]
        called = [c for c in start.called if c in self._execution.times]
        return [(callee.root, index) for callee in called] or None


def _is_node(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    if opcode == "parameter":
        return instruction.computation.is_entry
    return opcode not in CONTROL and opcode not in _HANDED_ON and opcode != "constant"


def _passes_on(body: Computation, position: int) -> bool:
    """Whether a loop's body hands on that element of its parameter as it is."""
    root = body.root
    if root.opcode != "tuple" or position >= len(root.operands):
        return False
    value = root.operands[position]
    while value.opcode in _HANDED_ON and value.operands:
        value = value.operands[0]
    return (
        value.opcode == "get-tuple-element"
        and any(operand.opcode == "parameter" for operand in value.operands)
        and value.tuple_index == position
    )
