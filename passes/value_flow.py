"""What every value is made from, through tuples, fusions, calls, loops and branches.

The graph has a node for each array that an instruction makes: of a tuple one
for each array in it. It is built once, in time linear in the module, and
questions about it are walks over whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.pipeline.analyses import analysis

__all__ = ["ValueFlow", "trace_value_flow"]

_SAME = frozenset({"add-dependency", "copy", "domain", "opt-barrier"})
_NOTHING = range(0)


@dataclass(frozen=True, slots=True)
class ValueFlow:
    """The graph of values.

    Attributes:
        nodes: The nodes of an instruction, one for each array of its result.
            Instructions of reducers and of what custom calls are handed have
            none.
        makers: The instruction of each node.
        inputs: For each node the nodes that it is made from. Loops make cycles.
        moved: Whether a node holds the elements of its only input, unchanged.
        opaque: Nodes of which the module does not tell what they are made from.
    """

    nodes: Mapping[Instruction, range]
    makers: Sequence[Instruction]
    inputs: Sequence[Sequence[int]]
    moved: Sequence[bool]
    opaque: frozenset[int]

    def users(self) -> list[list[int]]:
        """For each node those that are made from it."""
        found: list[list[int]] = [[] for _ in self.inputs]
        for node, inputs in enumerate(self.inputs):
            for source in inputs:
                found[source].append(node)
        return found


@analysis
def trace_value_flow(graph: CallGraph) -> ValueFlow:
    """Number the values of everything that is not run on single elements."""
    return _Builder(graph).flow()


class _Builder:
    def __init__(self, graph: CallGraph) -> None:
        self.graph = graph
        self.nodes: dict[Instruction, range] = {}
        self.makers: list[Instruction] = []
        self.inputs: list[list[int]] = []
        self.moved: list[bool] = []
        self.opaque: set[int] = set()
        self.wholes: dict[Instruction, int] = {}
        self.offsets: dict[Instruction, list[int]] = {}

    def flow(self) -> ValueFlow:
        reached = self.run_as_a_whole()
        for computation in reached:
            for instruction in computation.instructions:
                shape = instruction.shape
                # An empty tuple has a node too: it may tell in what order things happen.
                count = max(len(shape.leaves()), 1) if shape.is_tuple else 1
                start = len(self.makers)
                for _ in range(count):
                    self.node(instruction)
                self.nodes[instruction] = range(start, start + count)
        loops = []
        for computation in reached:
            for instruction in computation.instructions:
                self.join(instruction, self.nodes[instruction])
                if instruction.opcode == "while":
                    loops.append(instruction)
        for loop in loops:
            self.end(loop, self.nodes[loop])
        return ValueFlow(self.nodes, self.makers, self.inputs, self.moved, frozenset(self.opaque))

    def run_as_a_whole(self) -> list[Computation]:
        """Computations that are not run on single elements, nor by a custom call."""
        inner: set[Computation] = set()
        found = []
        for computation in reversed(self.graph.order):
            calls = self.graph.callers.get(computation, ())
            kinds = {call.kind for call in calls}
            if computation in inner or kinds & {CallKind.ELEMENT, CallKind.OPAQUE}:
                inner.update(call.callee for call in self.graph.calls[computation])
            else:
                found.append(computation)
        return found

    def node(self, maker: Instruction, inputs: Iterable[int] = ()) -> int:
        self.makers.append(maker)
        self.inputs.append(list(inputs))
        self.moved.append(False)
        return len(self.makers) - 1

    def whole(self, instruction: Instruction) -> int:
        """One node that stands for all arrays of an instruction."""
        nodes = self.nodes[instruction]
        if len(nodes) == 1:
            return nodes[0]
        found = self.wholes.get(instruction)
        if found is None:
            found = self.wholes[instruction] = self.node(instruction, nodes)
        return found

    def copies(self, nodes: range, sources: range) -> None:
        """Each node is the source of its place."""
        self.also(nodes, sources)
        if len(nodes) == len(sources):
            for node in nodes:
                self.moved[node] = True

    def also(self, nodes: range, sources: range) -> None:
        """Each node is made from the source of its place, and what it was made from before."""
        if len(nodes) != len(sources):
            self.opaque.update(nodes)
            return
        for node, source in zip(nodes, sources, strict=True):
            self.inputs[node].append(source)

    def join(self, instruction: Instruction, nodes: range) -> None:
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "parameter":
            self.parameter(instruction, nodes)
        elif not operands and opcode not in ("fusion", "call"):
            if opcode in ("while", "conditional") or instruction.called:
                self.opaque.update(nodes)
        elif opcode == "get-tuple-element":
            self.element(instruction, nodes)
        elif opcode == "tuple":
            self.tuple(nodes, operands)
        elif opcode in _SAME:
            self.copies(nodes, self.nodes[operands[0]])
        elif opcode in ("copy-start", "copy-done"):
            for node in nodes:
                self.copies(range(node, node + 1), self.nodes[operands[0]][:1])
        elif opcode == "while":
            self.loop(instruction, nodes)
        elif opcode == "conditional":
            self.made(nodes, operands[:1])
            for branch in dict.fromkeys(instruction.called):
                self.also(nodes, self.results(branch))
        elif opcode in ("fusion", "call", "async-done"):
            self.called(instruction, nodes)
        else:
            self.made(nodes, operands)

    def made(self, nodes: range, operands: Sequence[Instruction]) -> None:
        inputs = [self.whole(operand) for operand in operands]
        if len(nodes) > 1 and len(inputs) > 1:
            inputs = [self.node(self.makers[nodes[0]], inputs)]
        for node in nodes:
            self.inputs[node] = list(inputs)

    def tuple(self, nodes: range, operands: Sequence[Instruction]) -> None:
        sources = [
            source
            for operand in operands
            if not operand.shape.is_tuple or operand.shape.leaves()
            for source in self.nodes[operand]
        ]
        if len(sources) != len(nodes):
            self.opaque.update(nodes)
            return
        for node, source in zip(nodes, sources, strict=True):
            self.inputs[node], self.moved[node] = [source], True

    def element(self, instruction: Instruction, nodes: range) -> None:
        operand = instruction.operands[0]
        offsets = self.offsets.get(operand)
        if offsets is None:
            offsets = self.offsets[operand] = [0]
            for part in operand.shape.elements:
                offsets.append(offsets[-1] + len(part.leaves()))
        index = instruction.tuple_index or 0
        if 0 <= index < len(offsets) - 1:
            self.copies(nodes, self.nodes[operand][offsets[index] : offsets[index + 1]])
        else:
            self.opaque.update(nodes)

    def parameter(self, parameter: Instruction, nodes: range) -> None:
        calls = self.graph.callers.get(parameter.computation, ())
        if len(calls) == 1 and calls[0].kind in (CallKind.ONCE, CallKind.BRANCH):
            self.copies(nodes, self.handed_in(calls[0], parameter))
            return
        for call in calls:
            self.also(nodes, self.handed_in(call, parameter))
            if call.kind in (CallKind.BODY, CallKind.CONDITION):
                self.also(nodes, self.results(call.caller.callee("body")))

    def handed_in(self, call: Call, parameter: Instruction) -> range:
        number = parameter.parameter_number or 0
        if call.caller.opcode == "conditional":
            number = call.position + 1
        operands = call.caller.operands
        return self.nodes[operands[number]] if 0 <= number < len(operands) else _NOTHING

    def results(self, computation: Computation | None) -> range:
        """Nodes of what a computation returns; none where it has none."""
        return _NOTHING if computation is None else self.nodes.get(computation.root, _NOTHING)

    def loop(self, loop: Instruction, nodes: range) -> None:
        self.also(nodes, self.nodes[loop.operands[0]])
        self.also(nodes, self.results(loop.callee("body")))

    def end(self, loop: Instruction, nodes: range) -> None:
        """How many runs there are decides on what they change, and on nothing else."""
        body, condition = loop.callee("body"), loop.callee("condition")
        if body is None or condition is None or not body.parameters:
            self.opaque.update(nodes)
            return
        going = self.results(condition)[:1]
        before, after = self.nodes.get(body.parameters[0], _NOTHING), self.results(body)
        if not len(nodes) == len(before) == len(after) or not going:
            self.opaque.update(nodes)
            return
        for node, old, new in zip(nodes, before, after, strict=True):
            while self.moved[new]:
                new = self.inputs[new][0]
            if new != old:
                self.inputs[node].append(going[0])

    def called(self, instruction: Instruction, nodes: range) -> None:
        start = instruction
        while start.opcode in ("async-done", "async-update") and start.operands:
            start = start.operands[0]
        results = self.results(start.called[0] if start.called else None)
        if not results and not instruction.operands:
            self.opaque.update(nodes)
        elif not results:
            self.made(nodes, instruction.operands)
        elif len(self.graph.callers.get(start.called[0], ())) == 1:
            self.copies(nodes, results)
        else:
            self.also(nodes, results)
