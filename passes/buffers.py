"""Which buffer each array of a computation lies in.

A buffer is what XLA would allocate once. Names for it (tuples, elements of
tuples, bitcasts) take none of their own, an update in place writes into its
operand's, and a loop carries its values in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hloscope.ir import Computation, Instruction, Shape
from hloscope.ir.attributes import parse_integers
from hloscope.passes.memory_spaces import Space, space_of
from hloscope.passes.operand_reuse import (
    ELEMENTWISE,
    OVERWRITING,
    ElementwiseParameters,
    may_overwrite,
)

__all__ = ["Buffer", "BufferTable", "Values", "done_of", "tabulate"]

_ALIAS = re.compile(r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}")
_SAME = frozenset(("add-dependency", "bitcast", "domain", "opt-barrier", "while"))
_NAMES = (_SAME - {"while"}) | {"get-tuple-element", "tuple", "after-all"}
_LASTING = frozenset(("constant", "get-tuple-element", "parameter", "tuple"))

Values = tuple["Buffer", ...]


@dataclass(eq=False, slots=True)
class Buffer:
    """One block of memory, within one run of one computation.

    Attributes:
        instruction: What defines it.
        shape: The array that it was made for.
        size: Bytes, with the padding that the layout asks for.
        space: Which memory it lies in.
        external: Whether the caller holds it, so that it costs nothing here.
        lent: Whether it lies in the memory that a result has later; then it is
            external too.
        first: Position of the first definition in the schedule.
        last: Position of the last use.
        writers: What defines or updates it, in order.
        readers: What uses it, in order.
        parent: The buffer that it turned out to be a part of, if any.
    """

    instruction: Instruction
    shape: Shape
    size: int
    space: Space
    external: bool
    first: int
    last: int
    writers: list[Instruction] = field(default_factory=list)
    readers: list[Instruction] = field(default_factory=list)
    parent: Buffer | None = None
    lent: bool = False

    def resolve(self) -> Buffer:
        """The buffer that this one lies in: itself unless it was joined to another."""
        root = self
        while root.parent is not None:
            root = root.parent
        here = self
        while here.parent is not None:
            here.parent, here = root, here.parent
        return root

    def join(self, other: Buffer) -> None:
        """Make this one and the other the same memory, held where ``other`` is."""
        mine, theirs = self.resolve(), other.resolve()
        if mine is theirs:
            return
        mine.parent = theirs
        if mine.first < theirs.first:
            theirs.first = mine.first
        if mine.last > theirs.last:
            theirs.last = mine.last
        theirs.writers += mine.writers
        theirs.readers += mine.readers


@dataclass(slots=True)
class BufferTable:
    """The buffers of one computation.

    Attributes:
        computation: Whose they are.
        values: The buffers of each instruction's arrays, left to right.
        buffers: Every one that was made, joined ones included.
        passed: For each array of the root that is a parameter's, which one:
            the number of the parameter and the place among its arrays.
        carried: What a loop's body hands to its next run: the place of what it
            was given, the last use of that, and the new array.
    """

    computation: Computation
    values: dict[Instruction, Values] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    passed: dict[int, tuple[int, int]] = field(default_factory=dict)
    carried: list[tuple[Buffer, int, Buffer]] = field(default_factory=list)

    def distinct(self) -> list[Buffer]:
        """Buffers that were joined to no other, in the order of the schedule."""
        return [buffer for buffer in self.buffers if buffer.parent is None]


def tabulate(
    computation: Computation,
    *,
    on_chip: bool,
    done: dict[Computation, BufferTable],
    in_place_result: bool,
) -> BufferTable:
    """Give every array of a computation its buffer; linear in what the text prints.

    Args:
        computation: Whose arrays; its printed order is the schedule.
        on_chip: What :func:`has_on_chip_memory` says of the module.
        done: Tables of the computations that it calls.
        in_place_result: Whether the result lies where the parameter lay, as in
            the body of a loop.
    """
    return _Tabulation(computation, on_chip, done).run(in_place_result=in_place_result)


class _Tabulation:
    """One pass over the instructions of one computation."""

    def __init__(
        self, computation: Computation, on_chip: bool, done: dict[Computation, BufferTable]
    ) -> None:
        self.table = BufferTable(computation)
        self.on_chip = on_chip
        self.done = done
        self.starts: dict[Instruction, list[int]] = {}
        self.known: dict[int, tuple[int, Space]] = {}  # by the identity of a shape

    def run(self, *, in_place_result: bool) -> BufferTable:
        table, computation = self.table, self.table.computation
        for instruction in computation.instructions:
            table.values[instruction] = values = self.values_of(instruction)
            if instruction.opcode not in _NAMES:
                self.use(instruction, values)
        last = len(computation.instructions)
        results = table.values[computation.root]
        for buffer in results:
            whole = buffer.resolve()
            whole.last = max(whole.last, last)
        self.reuse_operands()
        if in_place_result and computation.parameters:
            carried = [b for p in computation.parameters for b in table.values[p]]
            for result, parameter in zip(results, carried, strict=False):
                if not result.resolve().external:
                    table.carried.append((parameter, parameter.last, result.resolve()))
                result.join(parameter)
        else:
            self.note_passed(results)
        return table

    def reuse_operands(self) -> None:
        """Let elementwise operations write over operands that die there, first come first served.

        Called when all last uses are known. What the computation returns has a
        place of its own: in an argument, in what a loop carries, in a result.
        """
        returned = {
            id(buffer.resolve()) for buffer in self.table.values[self.table.computation.root]
        }
        values = self.table.values
        elementwise = ElementwiseParameters()
        for user in self.table.computation.instructions:
            if user.opcode not in OVERWRITING:
                continue
            for place, result in enumerate(values[user]):
                own = result.instruction is user and result.parent is None
                if own and id(result) not in returned and result.space is not Space.ON_CHIP:
                    self.reuse_operand(user, place, result, elementwise)

    def reuse_operand(
        self, user: Instruction, place: int, result: Buffer, elementwise: ElementwiseParameters
    ) -> None:
        for number, operand in enumerate(user.operands):
            if operand.shape != result.shape or operand.opcode in _LASTING:
                continue
            (old,) = self.table.values.get(operand) or (result,)
            whole = old.resolve()
            if (
                old.instruction is operand
                and whole is not result
                and not whole.external
                and whole.last == user.index
                and whole.space is result.space
                and may_overwrite(user, number, elementwise, result=place)
            ):
                result.join(whole)
                return

    def note_passed(self, results: Values) -> None:
        places = {
            id(buffer): (number, place)
            for number, parameter in enumerate(self.table.computation.parameters)
            for place, buffer in enumerate(self.table.values[parameter])
        }
        for place, buffer in enumerate(results):
            where = places.get(id(buffer.resolve()))
            if where is not None:
                self.table.passed[place] = where

    def use(self, instruction: Instruction, values: Values) -> None:
        """Its operands live until here, and what it defines or updates from here."""
        position = instruction.index
        known = self.table.values
        operands = instruction.operands
        for operand in dict.fromkeys(operands) if len(operands) > 1 else operands:
            for buffer in known.get(operand, ()):
                whole = buffer if buffer.parent is None else buffer.resolve()
                if whole.last < position:
                    whole.last = position
                if not whole.readers or whole.readers[-1] is not instruction:
                    whole.readers.append(instruction)
        for buffer in values:
            whole = buffer if buffer.parent is None else buffer.resolve()
            if whole.last < position:
                whole.last = position
            if not whole.writers or whole.writers[-1] is not instruction:
                whole.writers.append(instruction)

    def values_of(self, instruction: Instruction) -> Values:
        opcode = instruction.opcode
        if opcode in ELEMENTWISE and not instruction.shape.is_tuple:
            return (self.new(instruction, instruction.shape),)
        values, operands = self.table.values, instruction.operands
        if opcode == "tuple":
            return tuple(buffer for operand in operands for buffer in values.get(operand, ()))
        if opcode == "get-tuple-element":
            return self.element(instruction)
        if opcode in _SAME:
            return self.fit(instruction, values.get(operands[0], ()) if operands else ())
        if opcode == "copy-start":
            return self.copy_start(instruction)
        if opcode.endswith(("-done", "-update")):
            return self.done_or_update(instruction)
        if opcode.endswith("-start") or opcode in ("send", "recv"):
            return self.started(instruction)
        made = self.made(instruction, self.shared(instruction))
        if opcode == "custom-call" and instruction.custom_call_target == "ConcatBitcast":
            self.assemble(instruction, made)
        return made

    def assemble(self, concatenation: Instruction, values: Values) -> None:
        """Slices that were copied side by side are the parts of one array from the start."""
        for operand in concatenation.operands:
            for part in self.table.values.get(operand, ()):
                whole = part.resolve()
                if not whole.external and whole.space is values[0].space:
                    whole.join(values[0])

    def element(self, instruction: Instruction) -> Values:
        if not instruction.operands:
            return self.made(instruction, {})
        source = instruction.operands[0]
        values = self.table.values.get(source, ())
        starts = self.starts.get(source)
        if starts is None:
            starts = [0]
            for member in source.shape.elements:
                starts.append(starts[-1] + _leaf_count(member))
            self.starts[source] = starts
        index = instruction.tuple_index or 0
        if index + 1 >= len(starts):
            return self.made(instruction, {})
        return self.fit(instruction, values[starts[index] : starts[index + 1]])

    def fit(self, instruction: Instruction, values: Values) -> Values:
        """The operand's buffers, unless the shapes do not correspond."""
        if len(values) == _leaf_count(instruction.shape):
            return values
        return self.made(instruction, {})

    def new(self, instruction: Instruction, shape: Shape) -> Buffer:
        known = self.known.get(id(shape))
        if known is None:
            known = (shape.padded_bytes, space_of(shape, on_chip=self.on_chip))
            self.known[id(shape)] = known
        position = instruction.index
        external = instruction.opcode == "parameter"
        buffer = Buffer(instruction, shape, *known, external, 0 if external else position, position)
        self.table.buffers.append(buffer)
        return buffer

    def made(self, instruction: Instruction, shared: dict[int, Buffer]) -> Values:
        """A buffer of its own for every array, but for those that lie in another's."""
        result = []
        for place, leaf in enumerate(instruction.shape.leaves()):
            other = shared.get(place)
            # An update in place never changes the memory that an array lies in.
            if other is None or other.resolve().size < leaf.padded_bytes:
                result.append(self.new(instruction, leaf))
            else:
                result.append(other)
        return tuple(result)

    def shared(self, instruction: Instruction) -> dict[int, Buffer]:
        """Arrays of the result, by place, that lie in the buffer of an operand."""
        opcode = instruction.opcode
        if opcode in ("dynamic-update-slice", "scatter"):
            targets = 1 if opcode[0] == "d" else max((len(instruction.operands) - 1) // 2, 1)
            return self.from_operands(instruction, [((k, 0), k) for k in range(targets)])
        if opcode == "call":
            return self.from_call(instruction)
        if opcode == "fusion":
            found = self.declared(instruction)
            return found or self.updated_in_fusion(instruction)
        if opcode in ("custom-call", "conditional"):
            return self.declared(instruction)
        return {}

    def from_operands(
        self, instruction: Instruction, pairs: Iterable[tuple[tuple[int, int], int]]
    ) -> dict[int, Buffer]:
        found = {}
        for (number, place), result in pairs:
            if number < len(instruction.operands):
                values = self.table.values.get(instruction.operands[number], ())
                if place < len(values):
                    found[result] = values[place]
        return found

    def declared(self, instruction: Instruction) -> dict[int, Buffer]:
        text = instruction.attributes.get("output_to_operand_aliasing")
        if not text:
            return {}
        results = _places(instruction.shape)
        sources: dict[int, dict[tuple[int, ...], int]] = {}
        pairs = []
        for output, operand, index in _ALIAS.findall(text):
            number = int(operand)
            if number >= len(instruction.operands):
                continue
            if number not in sources:
                sources[number] = _places(instruction.operands[number].shape)
            source = sources[number].get(parse_integers(index))
            target = results.get(parse_integers(output))
            if source is not None and target is not None:
                pairs.append(((number, source), target))
        return self.from_operands(instruction, pairs)

    def updated_in_fusion(self, fusion: Instruction) -> dict[int, Buffer]:
        """Results that the fusion's body updates in place within one of its parameters."""
        body = fusion.callee("calls")
        if body is None:
            return {}
        roots: Sequence[Instruction] = (
            body.root.operands if body.root.opcode == "tuple" else (body.root,)
        )
        pairs = []
        for place, root in enumerate(roots):
            number = _updated_parameter(root)
            if number is not None:
                pairs.append(((number, 0), place))
        return self.from_operands(fusion, pairs)

    def from_call(self, call: Instruction) -> dict[int, Buffer]:
        callee = call.callee("to_apply") or call.callee("calls")
        table = self.done.get(callee) if callee is not None else None
        if table is None:
            return {}
        return self.from_operands(call, [(where, place) for place, where in table.passed.items()])

    def copy_start(self, instruction: Instruction) -> Values:
        """(destination, source, context): the source stays where it is."""
        return self.made(instruction, self.from_operands(instruction, [((0, 0), 1)]))

    def started(self, start: Instruction) -> Values:
        """Operands stay where they are; results and context get memory."""
        shared = self.declared(start)
        shape = start.shape
        operands = [b for o in start.operands for b in self.table.values.get(o, ())]
        if start.opcode == "all-reduce-start" and not shared:
            # Results lie where the operands lay.
            shared = dict(enumerate(operands))
        elif shape.is_tuple and shape.elements and start.opcode != "recv":
            first = _leaf_count(shape.elements[0])
            if first == len(operands):
                shared.update(enumerate(operands))
        return self.made(start, shared)

    def done_or_update(self, instruction: Instruction) -> Values:
        """What an asynchronous start began to write."""
        if not instruction.operands:
            return self.made(instruction, {})
        start = instruction.operands[0]
        values = self.table.values.get(start, ())
        if instruction.opcode.endswith("-update"):
            return self.fit(instruction, values)
        wanted = _leaf_count(instruction.shape)
        members = start.shape.elements
        if instruction.opcode == "copy-done" or start.opcode in ("send", "recv"):
            chosen = values[:wanted]
        elif len(members) > 1 and _leaf_count(members[1]) == wanted:
            skipped = _leaf_count(members[0])
            chosen = values[skipped : skipped + wanted]
        else:
            chosen = values[:wanted]
        return self.fit(instruction, chosen)


def _updated_parameter(root: Instruction) -> int | None:
    """The fusion parameter that a root updates in place, through bitcasts."""
    node = _through(root)
    if node.opcode not in ("dynamic-update-slice", "scatter") or not node.operands:
        return None
    while node.opcode in ("dynamic-update-slice", "scatter") and node.operands:
        node = _through(node.operands[0])
    return node.parameter_number


def _through(node: Instruction) -> Instruction:
    while node.opcode in ("bitcast", "copy", "convert") and node.operands:
        if node.opcode != "bitcast" and node.operands[0].shape.bytes != node.shape.bytes:
            break
        node = node.operands[0]
    return node


def _places(shape: Shape) -> dict[tuple[int, ...], int]:
    """Where each leaf stands among the leaves, left to right, by its index."""
    found: dict[tuple[int, ...], int] = {}
    pending: list[tuple[tuple[int, ...], Shape]] = [((), shape)]
    while pending:
        index, part = pending.pop()
        if part.is_tuple:
            members = enumerate(part.elements)
            pending += [((*index, k), member) for k, member in members][::-1]
        else:
            found[index] = len(found)
    return found


def _leaf_count(shape: Shape) -> int:
    return len(shape.leaves()) if shape.is_tuple else 1


def done_of(computation: Computation) -> Callable[[Instruction], int]:
    """Gives the position of the instruction that ends an asynchronous start."""
    ends: dict[Instruction, int] = {}
    begun: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        if instruction.opcode.endswith(("-done", "-update")) and instruction.operands:
            start = begun.get(instruction.operands[0], instruction.operands[0])
            begun[instruction] = start
            ends[start] = instruction.index
    return lambda start: ends.get(start, start.index)
