"""Forward or backward, by what a value goes into, for programs whose instructions have no names.

A gradient depends on the whole forward pass, through the loss: what the forward
pass makes goes into every gradient. What the backward pass makes goes into the
gradients of the layers before it alone, and what comes after the gradients
(the optimizer, norms) goes into none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from hloscope.ir import Instruction
from hloscope.passes.collectives import SUMS, Collective, Collectives
from hloscope.passes.step_parts import StepPart
from hloscope.passes.updated_leaves import UpdatedLeaves, exchange_results
from hloscope.passes.value_flow import ValueFlow
from hloscope.pipeline.analyses import analysis

__all__ = ["FlowParts", "find_flow_parts"]


class FlowParts:
    """The part of the step of each exchange, by data flow alone; found when first asked for.

    Forward work that a checkpoint runs again counts as backward: it goes into
    the gradients that the backward pass of its own layers goes into.

    Args:
        collectives: The exchanges.
        flow: What every value is made from.
        updated: Which exchanges become a leaf's new value.
    """

    def __init__(self, collectives: Collectives, flow: ValueFlow, updated: UpdatedLeaves) -> None:
        self._collectives = collectives
        self._flow = flow
        self._updated = updated

    def of(self, exchange: Instruction) -> StepPart | None:
        """An exchange's part; ``None`` where devices sum fewer than two gradients to compare."""
        return self._parts.get(exchange)

    @cached_property
    def _parts(self) -> Mapping[Instruction, StepPart]:
        rows = self._collectives.rows
        summed = {row.instruction: self._gradients(row) for row in rows}
        gradients = [value for values in summed.values() for value in values]
        if len(gradients) < 2:
            return {}
        reached = self._reached(gradients)
        every = (1 << len(gradients)) - 1
        parts = {}
        for row in rows:
            if summed[row.instruction]:
                parts[row.instruction] = StepPart.BACKWARD
                continue
            goes_into = 0
            for nodes in exchange_results(row.instruction, self._flow):
                for node in nodes:
                    goes_into |= reached[node]
            if not goes_into:
                parts[row.instruction] = StepPart.OTHER
            else:
                forward = goes_into == every
                parts[row.instruction] = StepPart.FORWARD if forward else StepPart.BACKWARD
        return parts

    def _gradients(self, row: Collective) -> list[Instruction]:
        """The arrays that devices add up and that change what the step computes with.

        Statistics that the step only keeps (of batches, or the largest values
        for scales) are none.
        """
        if row.kind not in SUMS:
            return []
        results = exchange_results(row.instruction, self._flow)
        return [
            value
            for value, nodes in zip(row.instruction.operands, results, strict=True)
            if value.shape.num_elements > 1
            and any(self._updated.is_read(leaf) for leaf in self._updated.of_result(nodes))
        ]

    def _reached(self, gradients: Sequence[Instruction]) -> list[int]:
        """For each node the gradients that it goes into, as the bits of a number."""
        flow = self._flow
        reached = [0] * len(flow.inputs)
        for number, value in enumerate(gradients):
            for node in flow.nodes.get(value, range(0)):
                reached[node] |= 1 << number
        order = _users_first([node for node, bits in enumerate(reached) if bits], flow.inputs)
        changed = True
        while changed:  # once, and again for what loops carry back
            changed = False
            for node in order:
                bits = reached[node]
                for source in flow.inputs[node]:
                    if bits & ~reached[source]:
                        reached[source] |= bits
                        changed = True
        return reached


@analysis
def find_flow_parts(collectives: Collectives, flow: ValueFlow, updated: UpdatedLeaves) -> FlowParts:
    """Prepare to find into which of the gradients that devices sum each exchange goes."""
    return FlowParts(collectives, flow, updated)


def _users_first(start: Sequence[int], inputs: Sequence[Sequence[int]]) -> list[int]:
    """What the nodes are made from, each behind all that is made from it, loops aside."""
    done: list[int] = []
    seen: set[int] = set()
    for first in start:
        if first in seen:
            continue
        seen.add(first)
        path = [(first, iter(inputs[first]))]
        while path:
            node, sources = path[-1]
            for source in sources:
                if source not in seen:
                    seen.add(source)
                    path.append((source, iter(inputs[source])))
                    break
            else:
                done.append(node)
                path.pop()
    return done[::-1]
