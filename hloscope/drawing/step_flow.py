"""The flow of a training step with the part of the step that each of its nodes belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import networkx as nx

from hloscope.drawing.contents import Weight, weight_of
from hloscope.drawing.flow import Flow
from hloscope.ir import Computation, Instruction
from hloscope.passes.buffer_kinds import named_origin
from hloscope.passes.call_graph import CallKind
from hloscope.passes.execution import Execution
from hloscope.passes.scopes import collapse_scope
from hloscope.passes.step_parts import StepPart, part_of
from hloscope.pipeline.analyses import analysis

__all__ = ["StepFlow", "find_step_flow", "user_scope"]

_DEEPEST = 99


@dataclass(frozen=True, slots=True)
class StepFlow:
    """The flow of a training step, with the part of the step that each node belongs to.

    Attributes:
        flow: The graph.
        parts: Of every node.
        order: Position of every node; operands stand before what reads them
            within a computation.
        homes: Of every computation the one that it is a part of: the body of a
            loop or a branch, or the entry. What is only called is its caller's.
        merged: Instructions with the name of a repetition that are none, see
            :func:`find_step_flow`.
    """

    flow: Flow
    parts: Mapping[Instruction, StepPart]
    order: Mapping[Instruction, int]
    homes: Mapping[Computation, Computation]
    merged: frozenset[Instruction]

    def home(self, node: Instruction) -> Computation:
        """The loop's body, the branch or the entry that a node stands in."""
        return self.homes[node.computation]

    def sorted(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        """In the order of the schedule, each once."""
        return sorted(set(instructions), key=self.order.__getitem__)

    def of(self, part: StepPart) -> Iterator[Instruction]:
        """The nodes of one part, in order."""
        return (node for node in self.order if self.parts[node] is part)


@analysis
def find_step_flow(flow: Flow, execution: Execution) -> StepFlow:
    """Give every node its part, by its name where the flow does not contradict it.

    A nameless one in a loop is what most of the loop is. What a name calls
    backward or run again, but is made of the forward pass only and read by it,
    is forward: XLA merged a repetition with the first computation.
    """
    homes = _homes(execution)
    position = _positions(execution)
    nodes = sorted(flow.graph, key=lambda node: (*position[node.computation], node.index))
    parts: dict[Instruction, StepPart] = {}
    tallies: dict[Computation, Counter[StepPart]] = {}
    for node in nodes:
        parts[node] = part = part_of(named_origin(node))
        if part is not StepPart.OTHER:
            whole = StepPart.BACKWARD if part is StepPart.REPLAYED else part
            tallies.setdefault(homes[node.computation], Counter())[whole] += 1
    for node in nodes:
        if parts[node] is not StepPart.OTHER:
            continue
        home = homes[node.computation]
        tally = tallies.get(home)
        if tally and not home.is_entry:
            parts[node] = max(tally, key=lambda each: (tally[each], each))
        elif not named_origin(node).op_name:
            parts[node] = _by_makers(parts, flow, node)
    merged = frozenset(_merged(parts, flow))
    for node in merged:
        parts[node] = StepPart.FORWARD
    return StepFlow(flow, parts, {node: k for k, node in enumerate(nodes)}, homes, merged)


def _homes(execution: Execution) -> dict[Computation, Computation]:
    homes: dict[Computation, Computation] = {}
    for computation in reversed(execution.order):
        home = homes.setdefault(computation, computation)
        for call in execution.calls[computation]:
            if call.kind is CallKind.ONCE:
                homes.setdefault(call.callee, home)
    return homes


def _positions(execution: Execution) -> dict[Computation, tuple[int, ...]]:
    """Where each computation runs first: where the call of it stands in the schedule."""
    positions: dict[Computation, tuple[int, ...]] = {}
    for computation in reversed(execution.order):
        own = positions.setdefault(computation, ())
        for call in execution.calls[computation]:
            positions.setdefault(call.callee, (*own, call.caller.index))
    return positions


def _by_makers(parts: Mapping[Instruction, StepPart], flow: Flow, node: Instruction) -> StepPart:
    """Of what XLA made without a name, the latest part that it reads from."""
    read = {parts.get(maker) for maker in flow.makers(node)}
    if read & {StepPart.BACKWARD, StepPart.REPLAYED}:
        return StepPart.BACKWARD
    return StepPart.FORWARD if StepPart.FORWARD in read else StepPart.OTHER


def _merged(parts: Mapping[Instruction, StepPart], flow: Flow) -> set[Instruction]:
    """Repetitions that XLA merged with the first computation, whose name is the later one's.

    They are made of nothing but the forward pass, and the forward pass reads
    them: nothing is computed again there, whatever the names say.
    """
    if not nx.is_directed_acyclic_graph(flow.graph):
        return set()
    order = list(nx.topological_sort(flow.graph))
    late = (StepPart.BACKWARD, StepPart.REPLAYED)
    early: set[Instruction] = set()
    for node in order:
        # A gradient is no repetition; its cast may be a value's of the forward pass.
        gradient = parts[node] is StepPart.BACKWARD and (
            node in flow.carried or weight_of(node) > Weight.MOVES
        )
        if not gradient and all(maker in early for maker in flow.makers(node)):
            early.add(node)
    found: set[Instruction] = set()
    for node in reversed(order):
        if node in early and parts[node] in late:
            readers = list(flow.readers(node))
            if any(r in found or (parts[r] is StepPart.FORWARD and r in early) for r in readers):
                found.add(node)
    return found


def user_scope(op_name: str) -> str:
    """The user's scopes of an operation; those that JAX repeats under a checkpoint once."""
    parts = collapse_scope(op_name, _DEEPEST).split("/")
    for length in range(len(parts) // 2, 0, -1):
        if parts[:length] == parts[length : 2 * length]:
            parts = parts[length:]
            break
    return "/".join(parts)
