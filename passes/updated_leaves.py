"""Which leaf of the state a value turns into: how a gradient finds its parameter.

A gradient that devices have summed goes element by element through the
optimizer and becomes the new value of its parameter, and of the optimizer's
moments with it. What is read from it otherwise, a norm over all gradients for
one, is another value: it has fewer elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hloscope.ir import Instruction, Module
from hloscope.ir.signature import InputLeaf, Role
from hloscope.passes.aliasing import Aliasing
from hloscope.passes.entry_slots import parameter_slots, result_shapes
from hloscope.passes.operand_reuse import ELEMENTWISE
from hloscope.passes.origins import moves
from hloscope.passes.value_flow import ValueFlow
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.pytree_paths import Keys, keys_of

__all__ = ["EXCHANGES", "UpdatedLeaves", "exchange_results", "trace_updated_leaves"]

_MOST_VISITED = 20_000

# Numbers become truths: what follows is no longer the value.
_KEPT = ELEMENTWISE - {"compare", "is-finite"}
_HANDED_ON = frozenset(
    """
    async-done bitcast bitcast-convert broadcast call conditional fusion parameter reshape reverse
    transpose while
    """.split()  # noqa: SIM905
)
_FIRST_ONLY = frozenset({"dynamic-slice", "pad", "slice"})
_READERS = frozenset({"convolution", "dot", "gather", "ragged-dot", "scaled-dot"})
EXCHANGES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "reduce-scatter",
)
"""How the opcodes of what devices exchange begin."""


@dataclass(frozen=True, slots=True)
class UpdatedLeaves:
    """Follows values forward to the results that are a leaf's new value.

    Attributes:
        flow: What every value is made from.
    """

    flow: ValueFlow
    _users: Sequence[Sequence[int]]
    _ends: Mapping[int, InputLeaf]
    _starts: Mapping[str, int]
    _by_tail: Mapping[Keys, Sequence[InputLeaf]]
    _read: dict[str, bool] = field(default_factory=dict, repr=False)

    def of(self, exchange: Instruction) -> tuple[InputLeaf, ...]:
        """The leaves whose new values are made from an exchange's results, element by element.

        Of those that one result becomes the parameter counts, which the step
        reads for more than its own update, and not the optimizer's moments. A
        number that is applied to whole arrays belongs to no leaf.

        Args:
            exchange: A collective, also one that stands in a fusion.
        """
        found: dict[str, InputLeaf] = {}
        for nodes in exchange_results(exchange, self.flow):
            for leaf in self.of_result(nodes):
                found[leaf.path] = leaf
        return tuple(found.values())

    def of_result(self, nodes: Iterable[int]) -> list[InputLeaf]:
        """The same for the nodes of one result."""
        reached: dict[str, InputLeaf] = {}
        start = list(nodes)
        number = any(self.count(node) == 1 for node in start)

        def visit(node: int, users: Iterable[int]) -> bool:
            if number and any(self._spreads(user) for user in users):
                reached.clear()
                return False
            leaf = self._ends.get(node)
            if leaf is not None:
                reached[leaf.path] = leaf
            return True

        self._walk(start, visit)
        read = {leaf.path: leaf for leaf in reached.values() if self.is_read(leaf)}
        if read:
            return list(read.values())
        named = (self._parameter_of(leaf) for leaf in reached.values())
        known = {leaf.path: leaf for leaf in named if leaf is not None}
        return list((known or reached).values())

    def _parameter_of(self, moment: InputLeaf) -> InputLeaf | None:
        """The parameter whose path a moment's path ends with, for one whose result is unknown."""
        keys = keys_of(moment.path)
        for size in range(len(keys) - 1, 0, -1):
            for leaf in self._by_tail.get(keys[-size:], ()):
                if leaf.dimensions == moment.dimensions and self.is_read(leaf):
                    return leaf
        return None

    def is_read(self, leaf: InputLeaf) -> bool:
        """Whether a product, a lookup or a larger array is made from the leaf."""
        known = self._read.get(leaf.path)
        if known is None:
            start = self._starts.get(leaf.path)

            def visit(_: int, users: Iterable[int]) -> bool:
                return not any(self._reads(user) for user in users)

            known = start is not None and not self._walk([start], visit)
            self._read[leaf.path] = known
        return known

    def _walk(self, nodes: list[int], visit: Callable[[int, Iterable[int]], bool]) -> bool:
        """Visit what the values turn into, until a visit says no; whether none did."""
        pending, seen = nodes, set(nodes)
        while pending and len(seen) < _MOST_VISITED:
            node = pending.pop()
            if not visit(node, self._users[node]):
                return False
            for following in self._next(node):
                if following not in seen:
                    seen.add(following)
                    pending.append(following)
        return True

    def _next(self, source: int) -> Iterator[int]:
        for user in self._users[source]:
            maker = self.flow.makers[user]
            if self.flow.moved[user]:
                yield user
            elif maker.opcode.startswith(EXCHANGES):
                for sent, nodes in zip(
                    maker.operands, exchange_results(maker, self.flow), strict=False
                ):
                    if source in self.flow.nodes[sent]:
                        yield from nodes
            elif user in self.flow.nodes[maker] and self._keeps(maker, source, user):
                yield user

    def _keeps(self, maker: Instruction, source: int, user: int) -> bool:
        """Whether an instruction's result is the value still, or the part of it that is kept."""
        opcode = maker.opcode
        if opcode in _FIRST_ONLY or (opcode == "custom-call" and moves(maker)):
            return source in self.flow.nodes[maker.operands[0]]
        if opcode == "dynamic-update-slice":
            return any(source in self.flow.nodes[operand] for operand in maker.operands[:2])
        same = opcode in _KEPT or opcode in _HANDED_ON or (opcode == "reduce" and moves(maker))
        return same and self.count(source) == self.count(user)

    def _reads(self, user: int) -> bool:
        maker = self.flow.makers[user]
        if maker.opcode == "custom-call":
            return not moves(maker)
        return maker.opcode in _READERS or self._spreads(user)

    def _spreads(self, user: int) -> bool:
        """Whether a value is made larger by repeating it."""
        maker = self.flow.makers[user]
        return (
            maker.opcode == "broadcast"
            and maker.shape.num_elements > maker.operands[0].shape.num_elements
        )

    def count(self, node: int) -> int:
        """Elements of a value; -1 of one that stands for a whole tuple."""
        maker = self.flow.makers[node]
        nodes, shapes = self.flow.nodes[maker], maker.shape.leaves()
        place = node - nodes.start
        return shapes[place].num_elements if place < len(shapes) else -1


@analysis
def trace_updated_leaves(module: Module, flow: ValueFlow, aliasing: Aliasing) -> UpdatedLeaves:
    """Prepare to follow values to the leaves' new values; each is followed when asked for.

    A leaf of the state has its new value in the result at its own path, or where
    the paths do not tell in the one that takes over its buffer with the same type
    and sizes: TPU compilers hand the buffers of small arrays on to others, too.
    """
    results = flow.nodes.get(module.entry.root, range(0))
    shapes = result_shapes(module)
    place = {index: number for number, index in enumerate(shapes)}
    slots = parameter_slots(module)
    ends: dict[int, InputLeaf] = {}
    starts: dict[str, int] = {}
    first: dict[Instruction, int] = {}
    for position, slot in enumerate(slots):
        first.setdefault(slot.parameter, position)
    for row in aliasing.leaves:
        number = row.leaf.parameter
        if number is None or number >= len(slots) or row.leaf.role is not Role.STATE:
            continue
        partner = row.partner.index if row.partner is not None else None
        if partner is None and row.alias is not None:
            new, old = shapes.get(row.alias.output_index), slots[number].shape
            if new is not None and (new.dtype, new.dimensions) == (old.dtype, old.dimensions):
                partner = place[row.alias.output_index]
        if partner is not None and partner < len(results):
            ends[results[partner]] = row.leaf
        nodes = flow.nodes.get(slots[number].parameter, range(0))
        within = number - first[slots[number].parameter]
        if within < len(nodes):
            starts[row.leaf.path] = nodes[within]
    tails: dict[Keys, list[InputLeaf]] = {}
    for row in aliasing.leaves:
        tails.setdefault(keys_of(row.leaf.path)[1:], []).append(row.leaf)
    return UpdatedLeaves(flow, flow.users(), ends, starts, tails)


def exchange_results(exchange: Instruction, flow: ValueFlow) -> list[Sequence[int]]:
    """The nodes that an exchange gives for each of its operands.

    A start's results are those of its end. Where the numbers of operands and
    results differ every result is made from every operand.
    """
    end = exchange
    if exchange.opcode.endswith("-start"):
        ends = [user for user in exchange.users if user.opcode.endswith("-done")]
        end = ends[0] if ends else exchange
    nodes = flow.nodes.get(end, range(0))
    operands = exchange.operands
    if exchange.opcode.startswith("all-to-all") or len(nodes) != len(operands):
        return [nodes] * len(operands)
    return [nodes[place : place + 1] for place in range(len(nodes))]
