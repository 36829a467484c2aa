"""Copies that defeat an alias: the buffer is shared, and its contents are copied all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from hloscope.ir import Computation, Instruction, Module, Shape
from hloscope.passes.aliasing import Aliasing, LeafAliasing
from hloscope.passes.entry_slots import Index, Slot, layouts_differ, parameter_slots, result_shapes
from hloscope.passes.execution import Execution
from hloscope.passes.multiplicity import ONCE, Times
from hloscope.passes.value_chains import chain_of, out_of_order, slot_values
from hloscope.pipeline.analyses import analysis

__all__ = ["AliasCopies", "AliasCopy", "CopyKind", "find_alias_copies", "line_of"]

_POINTERS = frozenset(("bitcast", "get-tuple-element", "opt-barrier"))


class CopyKind(StrEnum):
    """Why a copy stands between an aliased argument and its result."""

    READ_LATER = "the old value is read later"
    RETURNED = "the old value is returned"
    BESIDE = "made beside the old value, which is still read"
    CARRIED = "carried by a loop"
    ITERATION = "in each iteration"
    NOT_IN_PLACE = "out of place"
    EXCHANGED = "the value of another argument"
    INTO = "made elsewhere"
    LAYOUT = "argument and result have different layouts"
    RELAYOUT = "another layout"


@dataclass(frozen=True, slots=True)
class AliasCopy:
    """One whole copy of an aliased argument, or into its buffer.

    Beside each stands a temporary of its size: the copy of the old value, or
    the new value before it is copied in.

    Attributes:
        leaf: The argument.
        instruction: The copy; the start of an asynchronous one.
        kind: Why it is there.
        bytes: Size of what is copied, once.
        times: How often it runs in one execution of the program.
        forced_by: What makes it necessary: the consumers that read the old value
            once the new one is there (all that read the copy where the schedule
            does not tell), and what makes the new value out of place.
        how: Opcode of what makes it out of place, where that is seen.
    """

    leaf: LeafAliasing
    instruction: Instruction
    kind: CopyKind
    bytes: int
    times: Times
    forced_by: tuple[Instruction, ...]
    how: str = ""

    @property
    def why(self) -> str:
        """Why it is there, in words."""
        return f"{self.kind.value} ({self.how})" if self.how else self.kind.value

    @property
    def located(self) -> Instruction | None:
        """What tells the Python line of what forces it, if anything does."""
        return next((one for one in map(line_of, self.forced_by) if one is not None), None)

    def forced_by_names(self, most: int | None = None) -> list[str]:
        """What forces it, in words.

        Args:
            most: How many to name; all if ``None``.
        """
        return [_name(reader) for reader in self.forced_by[:most]]

    @property
    def defeats(self) -> bool:
        """Whether the alias saved nothing; a change of layout on the way has its own reason."""
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
        if leaf.alias is not None and leaf.leaf.parameter is not None and leaf.bytes:
            slot = slots[leaf.leaf.parameter]
            for copy in search.of(leaf, slot, leaf.alias.output_index):
                # A swap copies one argument into the buffer of the other: one copy, not two.
                found.setdefault(copy.instruction, copy)
    order = sorted(found.values(), key=lambda c: (-c.bytes * c.times.nominal, c.instruction.name))
    return AliasCopies(tuple(order))


class _Search:
    def __init__(self, module: Module, execution: Execution) -> None:
        self.module = module
        self.times = execution.times
        self.results = result_shapes(module)

    def of(self, leaf: LeafAliasing, slot: Slot, index: Index) -> Iterator[AliasCopy]:
        if index not in self.results:
            return
        values = _pointers(slot_values(slot))
        readers = [reader for value in values for reader in _readers(value)]
        case = _Leaf(
            leaf,
            tuple(values),
            tuple(dict.fromkeys(readers)),
            _writer(self.module, index),
            relaid=layouts_differ(slot.shape, self.results[index]),
        )
        for value in values:
            for user in value.users:
                if _is_copy(user):
                    yield from self.out_of(case, value, user)
                elif user.opcode == "while":
                    yield from self.in_body(leaf, user, value)
                elif user.opcode == "tuple":
                    for loop in user.users:
                        if loop.opcode == "while":
                            yield from self.in_body(leaf, loop, value)
        yield from self.into(case)

    def out_of(self, case: _Leaf, value: Instruction, copy: Instruction) -> Iterator[AliasCopy]:
        """A copy of the argument itself."""
        kind = _kind(value.shape, _copied(copy))
        if kind is None:
            return
        readers = _readers(copy)
        loops = [reader for reader in readers if reader.opcode == "while"]
        forced_by: Iterable[Instruction] = readers
        how = ""
        if case.relaid:
            kind = CopyKind.LAYOUT
        elif loops and kind is CopyKind.READ_LATER:
            kind = CopyKind.CARRIED
            forced_by = self.after(case.readers, loops[0]) or readers
        elif kind is CopyKind.READ_LATER:
            late = self.after(readers, case.writer)
            alone = readers == [case.writer]
            if not late and (alone or (self.module.is_scheduled and case.writer in readers)):
                kind, late = CopyKind.NOT_IN_PLACE, (case.writer,)
                how = _how(case.writer, [copy])
            elif late and _how(case.writer, [copy]):
                late = (*late, case.writer)
            forced_by = late or readers
        yield self.found(case.leaf, copy, kind, forced_by, how)
        for loop in loops:
            yield from self.in_body(case.leaf, loop, copy)

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

    def into(self, case: _Leaf) -> Iterator[AliasCopy]:
        """A copy that ends in the result, whose buffer is the argument's."""
        copy = case.writer
        if not _is_copy(copy):
            return
        source = copy.operands[0]
        if _kind(source.shape, _copied(copy)) is not CopyKind.READ_LATER:
            return
        maker = _maker(source)
        late = self.after(case.readers, maker)
        if case.relaid:
            yield self.found(case.leaf, copy, CopyKind.LAYOUT, (maker,))
        elif maker.opcode == "parameter":
            yield self.found(case.leaf, copy, CopyKind.EXCHANGED, (maker,))
        elif late:
            yield self.found(case.leaf, copy, CopyKind.BESIDE, late)
        elif maker in case.readers:
            how = _how(maker, case.values)
            yield self.found(case.leaf, copy, CopyKind.NOT_IN_PLACE, (maker,), how)
        else:
            yield self.found(case.leaf, copy, CopyKind.INTO, (maker,))

    def after(
        self, readers: Iterable[Instruction], written: Instruction
    ) -> tuple[Instruction, ...]:
        """Those that run once the new value is there; none where no schedule tells."""
        if not self.module.is_scheduled:
            return ()
        entry = self.module.entry
        return tuple(r for r in readers if r.computation is entry and r.index > written.index)

    def found(
        self,
        leaf: LeafAliasing,
        copy: Instruction,
        kind: CopyKind,
        forced_by: Iterable[Instruction],
        how: str = "",
    ) -> AliasCopy:
        times = self.times.get(copy.computation, ONCE)
        forced_by = tuple(forced_by)
        reading = (CopyKind.READ_LATER, CopyKind.BESIDE, CopyKind.CARRIED)
        if kind in reading and forced_by and all(map(_returns, forced_by)):
            kind = CopyKind.RETURNED
        return AliasCopy(leaf, copy, kind, _copied(copy).bytes, times, forced_by, how)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """An aliased leaf in the entry.

    Attributes:
        values: The argument, and what only points at it.
        readers: What reads the old value, through whole copies too.
        writer: What writes the new one into its buffer.
        relaid: Whether argument and result have different layouts.
    """

    leaf: LeafAliasing
    values: tuple[Instruction, ...]
    readers: tuple[Instruction, ...]
    writer: Instruction
    relaid: bool


def _writer(module: Module, index: Index) -> Instruction:
    """The entry's instruction that a result comes from, tuples and pointers taken off."""
    last = module.entry.root
    for link in chain_of(last, index):
        if link.computation is not module.entry:
            break
        last = link
        if link.opcode not in _POINTERS | {"tuple", "copy-done"}:
            break
    return last


def _maker(value: Instruction) -> Instruction:
    """The instruction of its computation that made a value, copies taken off."""
    made = value
    for link in chain_of(value):
        if link.computation is not value.computation:
            break
        made = link
        if link.opcode not in _POINTERS | {"copy", "copy-start", "copy-done"}:
            break
    return made


def line_of(reader: Instruction) -> Instruction | None:
    """The instruction itself if it has a Python line, else the last in its fusion that has."""
    if reader.location is not None or reader.opcode != "fusion" or not reader.called:
        return reader if reader.location is not None else None
    inside = reversed(reader.called[0].instructions)
    return next((one for one in inside if one.location is not None), None)


def _how(maker: Instruction, values: Iterable[Instruction]) -> str:
    return next(filter(None, (out_of_order(maker, one) for one in _pointers(values))), "")


def _name(reader: Instruction) -> str:
    if reader.opcode == "parameter":
        return f"the argument {reader.op_name or reader.name}"
    return "a result of the step" if _returns(reader) else reader.name


def _returns(reader: Instruction) -> bool:
    return reader.is_root and reader.opcode == "tuple"


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


def _readers(value: Instruction) -> list[Instruction]:
    """What uses a value, through tuples, pointers and whole copies of it."""
    through = _POINTERS | {"tuple", "copy", "copy-start", "copy-done"}
    found: dict[Instruction, None] = {}
    work = list(value.users)
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
