"""Copies that defeat an alias: the buffer is shared, and its contents are copied all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from hloscope.ir import Computation, Instruction, Module, Shape
from hloscope.passes.aliasing import Aliasing, LeafAliasing
from hloscope.passes.entry_slots import Slot, parameter_slots, result_shapes
from hloscope.passes.execution import Execution
from hloscope.passes.multiplicity import ONCE, Times
from hloscope.passes.value_chains import chain_of, slot_values
from hloscope.pipeline.analyses import analysis

__all__ = ["AliasCopies", "AliasCopy", "CopyKind", "find_alias_copies"]

_POINTERS = frozenset(("bitcast", "get-tuple-element", "opt-barrier"))


class CopyKind(StrEnum):
    """Why a copy stands between an aliased argument and its result."""

    READ_LATER = "the old value is read"
    CARRIED = "carried by a loop"
    ITERATION = "in each iteration"
    INTO = "made elsewhere"
    RELAYOUT = "another layout"


@dataclass(frozen=True, slots=True)
class AliasCopy:
    """One whole copy of an aliased argument, or into its buffer.

    Attributes:
        leaf: The argument.
        instruction: The copy; the start of an asynchronous one.
        kind: Why it is there.
        bytes: Size of what is copied, once.
        times: How often it runs in one execution of the program.
        readers: What takes the copy in place of the buffer: the consumers that
            force it. Of a copy into the buffer, what made the value.
    """

    leaf: LeafAliasing
    instruction: Instruction
    kind: CopyKind
    bytes: int
    times: Times
    readers: tuple[Instruction, ...]

    @property
    def defeats(self) -> bool:
        """Whether the alias saved nothing; a change of layout has a reason of its own."""
        return self.kind is not CopyKind.RELAYOUT


@dataclass(frozen=True, slots=True)
class AliasCopies:
    """All such copies, most bytes first."""

    copies: tuple[AliasCopy, ...]


@analysis
def find_alias_copies(module: Module, aliasing: Aliasing, execution: Execution) -> AliasCopies:
    """Look at every aliased leaf for whole copies between the argument and its result.

    Copy insertion has run in an optimized module only; before that there is
    nothing to see. A copy to another memory space (a TPU's prefetch to VMEM, an
    offload to the host) moves data on purpose and is none of these. One to
    another layout is listed as a relayout.
    """
    slots = parameter_slots(module)
    search = _Search(module, execution)
    found: dict[Instruction, AliasCopy] = {}
    for leaf in aliasing.leaves:
        if leaf.alias is not None and leaf.leaf.parameter is not None:
            for copy in search.of(leaf, slots[leaf.leaf.parameter]):
                # A swap copies one argument into the buffer of the other: one copy, not two.
                found.setdefault(copy.instruction, copy)
    order = sorted(found.values(), key=lambda c: (-c.bytes * c.times.nominal, c.instruction.name))
    return AliasCopies(tuple(order))


class _Search:
    def __init__(self, module: Module, execution: Execution) -> None:
        self.module = module
        self.times = execution.times
        self.results = result_shapes(module)

    def of(self, leaf: LeafAliasing, slot: Slot) -> Iterator[AliasCopy]:
        for value in _pointers(slot_values(slot)):
            for user in value.users:
                if _is_copy(user):
                    yield from self.out_of(leaf, value, user)
                elif user.opcode == "while":
                    yield from self.in_body(leaf, user, value)
                elif user.opcode == "tuple":
                    for loop in user.users:
                        if loop.opcode == "while":
                            yield from self.in_body(leaf, loop, value)
        if leaf.alias is not None and leaf.alias.output_index in self.results:
            yield from self.into(leaf, leaf.alias.output_index)

    def out_of(
        self, leaf: LeafAliasing, value: Instruction, copy: Instruction
    ) -> Iterator[AliasCopy]:
        """A copy of the argument itself."""
        kind = _kind(value.shape, _copied(copy))
        if kind is None:
            return
        readers = _readers(copy)
        loops = [reader for reader in readers if reader.opcode == "while"]
        if loops and kind is CopyKind.READ_LATER:
            kind = CopyKind.CARRIED
        yield self.found(leaf, copy, kind, readers)
        for loop in loops:
            yield from self.in_body(leaf, loop, copy)

    def in_body(
        self, leaf: LeafAliasing, loop: Instruction, value: Instruction
    ) -> Iterator[AliasCopy]:
        """Copies of a carried argument in each iteration."""
        body = loop.callee("body")
        if body is None:
            return
        for position in _carried_at(loop, value):
            for element in _elements(body, position):
                for user in element.users:
                    if _is_copy(user):
                        kind = _kind(element.shape, _copied(user))
                        if kind is CopyKind.READ_LATER:
                            kind = CopyKind.ITERATION
                        if kind is not None:
                            yield self.found(leaf, user, kind, _readers(user))

    def into(self, leaf: LeafAliasing, index: tuple[int, ...]) -> Iterator[AliasCopy]:
        """A copy that ends in the result, whose buffer is the argument's."""
        for link in chain_of(self.module.entry.root, index):
            if link.computation is not self.module.entry:
                return
            if _is_copy(link) and link.opcode != "copy-done":
                source = link.operands[0]
                kind = _kind(source.shape, _copied(link))
                if kind is CopyKind.READ_LATER:
                    yield self.found(leaf, link, CopyKind.INTO, (source,))
                return
            if link.opcode not in _POINTERS | {"tuple", "copy-done"}:
                return

    def found(
        self,
        leaf: LeafAliasing,
        copy: Instruction,
        kind: CopyKind,
        readers: Iterable[Instruction],
    ) -> AliasCopy:
        times = self.times.get(copy.computation, ONCE)
        return AliasCopy(leaf, copy, kind, _copied(copy).bytes, times, tuple(readers))


def _is_copy(instruction: Instruction) -> bool:
    return instruction.opcode in ("copy", "copy-start")


def _copied(copy: Instruction) -> Shape:
    """Shape of what the copy gives; a start's is the first of its tuple."""
    return copy.shape.elements[0] if copy.shape.is_tuple else copy.shape


def _kind(source: Shape, target: Shape) -> CopyKind | None:
    """What a copy from one shape to another is; ``None`` for a move between memories."""
    if source.layout is None or target.layout is None:
        return CopyKind.READ_LATER
    if source.layout.memory_space != target.layout.memory_space:
        return None
    if source.layout.minor_to_major != target.layout.minor_to_major:
        return CopyKind.RELAYOUT
    if source.layout.tiles != target.layout.tiles:
        return CopyKind.RELAYOUT
    return CopyKind.READ_LATER


def _pointers(values: Iterable[Instruction]) -> list[Instruction]:
    """The values and whatever only points at them."""
    found = list(dict.fromkeys(values))
    for value in found:  # grows while it is gone through
        found += [u for u in value.users if u.opcode in _POINTERS and u not in found]
    return found


def _readers(copy: Instruction) -> list[Instruction]:
    """What uses a copy, through tuples and pointers and the end of an asynchronous one."""
    through = _POINTERS | {"tuple", "copy-done"}
    found: dict[Instruction, None] = {}
    work = list(copy.users)
    seen = set(work)
    while work:
        user = work.pop(0)
        if user.opcode not in through or user.is_root:
            found[user] = None
            continue
        for following in user.users:
            if following not in seen:
                seen.add(following)
                work.append(following)
    return list(found)


def _carried_at(loop: Instruction, value: Instruction) -> list[int | None]:
    """Where in the loop's carry a value goes in; ``None`` if it is the whole carry."""
    carry = loop.operands[0]
    if carry.opcode != "tuple":
        return [None] if carry is value else []
    return [
        number
        for number, operand in enumerate(carry.operands)
        if operand is value or any(link is value for link in _pointed(operand))
    ]


def _pointed(instruction: Instruction) -> Iterator[Instruction]:
    while instruction.opcode in _POINTERS | {"copy-done", "copy-start"} and instruction.operands:
        instruction = instruction.operands[0]
        yield instruction


def _elements(body: Computation, position: int | None) -> list[Instruction]:
    if not body.parameters:
        return []
    carry = body.parameters[0]
    if position is None:
        return _pointers([carry])
    return _pointers(
        u for u in carry.users if u.opcode == "get-tuple-element" and u.tuple_index == position
    )
