"""Which leaves a value is computed from, element by element or as a sum over them.

A weight that is quantized before devices exchange it is no longer the leaf's
elements, and the norm of a gradient is not its new value; both are still about
one leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hloscope.ir import Instruction, Module
from hloscope.ir.signature import InputLeaf, Signature
from hloscope.passes.entry_slots import parameter_slots
from hloscope.passes.operand_reuse import ELEMENTWISE
from hloscope.passes.origins import moves
from hloscope.passes.updated_leaves import EXCHANGES, UpdatedLeaves
from hloscope.passes.value_flow import ValueFlow
from hloscope.pipeline.analyses import analysis

__all__ = ["LeafSources", "trace_leaf_sources"]

_MOST_VISITED = 2_000

_ALIKE = ELEMENTWISE | frozenset(
    """
    async-done bitcast bitcast-convert broadcast call conditional fusion get-tuple-element parameter
    reshape reverse transpose tuple while
    """.split()  # noqa: SIM905
)
_FIRST_ONLY = frozenset({"dynamic-slice", "pad", "reduce", "reduce-window", "slice"})
_SUMS = ("all-reduce", "reduce-scatter")
_JOINED = frozenset({"concatenate"})


@dataclass(frozen=True, slots=True)
class LeafSources:
    """Follows values backward to the leaves that they are computed from."""

    flow: ValueFlow
    updated: UpdatedLeaves
    _leaves: Mapping[int, InputLeaf]

    def of(self, value: Instruction) -> tuple[InputLeaf, ...]:
        """The leaves that a value is computed from without a product, a lookup or another array.

        Where several lie behind it, the parameters count and not the optimizer's
        moments. What is applied to whole arrays, such as a step size, is not
        followed; a gradient that devices have summed stands for its leaf.

        Args:
            value: An array, or a tuple of them.
        """
        found: dict[str, InputLeaf] = {}
        pending = list(self.flow.nodes.get(value, range(0)))
        seen = set(pending)
        while pending and len(seen) < _MOST_VISITED:
            node = pending.pop()
            maker = self.flow.makers[node]
            leaf = self._leaves.get(node)
            if leaf is not None:
                found[leaf.path] = leaf
                continue
            known = self.updated.of_result([node]) if maker.opcode.startswith(EXCHANGES) else ()
            if known:
                found.update((leaf.path, leaf) for leaf in known)
                continue
            for source in self._sources(node, maker):
                if source not in seen:
                    seen.add(source)
                    pending.append(source)
        if len(seen) >= _MOST_VISITED:
            return ()
        read = [leaf for leaf in found.values() if self.updated.is_read(leaf)]
        return tuple(read or found.values())

    def _sources(self, node: int, maker: Instruction) -> Iterator[int]:
        inputs, opcode = self.flow.inputs[node], maker.opcode
        if not inputs:
            return
        if self.flow.moved[node] or opcode in _JOINED:
            yield from inputs
        elif opcode.startswith(EXCHANGES):
            # A sum over devices is another value; what only moves is followed.
            start = maker.operands[0] if opcode.endswith("-done") else maker
            if not opcode.startswith(_SUMS):
                for operand in start.operands:
                    yield from self.flow.nodes.get(operand, ())
        elif opcode in _FIRST_ONLY or (opcode == "custom-call" and moves(maker)):
            yield from self.flow.nodes.get(maker.operands[0], ())
        elif opcode == "dynamic-update-slice":
            for operand in maker.operands[:2]:
                yield from self.flow.nodes.get(operand, ())
        elif opcode in _ALIKE:
            count = self.updated.count(node)
            yield from (source for source in inputs if self.updated.count(source) == count)


@analysis
def trace_leaf_sources(
    module: Module, flow: ValueFlow, updated: UpdatedLeaves, signature: Signature
) -> LeafSources:
    """Prepare to follow values to the leaves behind them; each is followed when asked for."""
    slots = parameter_slots(module)
    taken: dict[Instruction, int] = {}
    nodes: list[int | None] = []
    for slot in slots:
        place = taken.get(slot.parameter, 0)
        taken[slot.parameter] = place + 1
        known = flow.nodes.get(slot.parameter, range(0))
        nodes.append(known[place] if place < len(known) else None)
    leaves = {}
    for number, leaf in signature.by_parameter().items():
        node = nodes[number] if number < len(nodes) else None
        if node is not None:
            leaves[node] = leaf
    return LeafSources(flow, updated, leaves)
