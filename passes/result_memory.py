"""Temporaries that lie in the memory of a result until the result is written.

Results get memory before the program starts. XLA's buffer assignment
(``BufferAssigner::MaybeAssignBuffer``) goes through all buffers by decreasing
size and puts a temporary there that is no larger and dead by the time that the
result is written; a donated argument's memory serves the same way once the
argument has been read for the last time. Such a temporary takes nothing of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hloscope.ir import Computation, Instruction
from hloscope.passes.buffers import Buffer, BufferTable
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.loop_holes import Hole
from hloscope.passes.memory_spaces import Space
from hloscope.passes.operand_reuse import ElementwiseParameters, may_overwrite

__all__ = ["FreeMemory", "lend_holes", "lend_memory", "until_written"]

_TRIED = 64  # places that are tried for one buffer, so that the pass stays linear


@dataclass(slots=True)
class FreeMemory:
    """Memory that nothing needs for a part of the run.

    Attributes:
        size: Its bytes.
        space: Which memory it is.
        first: The first position of the schedule at which it is free.
        last: The last one.
        writer: What writes the result into it at the position after ``last``, if any.
        reader_of: What lies in it until the position before ``first``, if anything.
        taken: Positions at which temporaries already lie there.
    """

    size: int
    space: Space
    first: int
    last: int
    writer: Instruction | None = None
    reader_of: Instruction | None = None
    taken: list[tuple[float, float]] = field(default_factory=list)

    def take(
        self, buffer: Buffer, first: float, last: float, elementwise: ElementwiseParameters
    ) -> bool:
        """Give room to a buffer if there is any from its first to its last position."""
        if buffer.size > self.size or buffer.space is not self.space:
            return False
        if first < self.first and not (
            first == self.first - 1
            and _writes_over(buffer.instruction, self.reader_of, elementwise)
        ):
            return False
        if last > self.last and not (
            last == self.last + 1 and _writes_over(self.writer, buffer.instruction, elementwise)
        ):
            return False
        if any(first <= end and last >= begin for begin, end in self.taken):
            return False
        self.taken.append((first, last))
        return True


def _writes_over(
    writer: Instruction | None, old: Instruction | None, elementwise: ElementwiseParameters
) -> bool:
    """Whether an instruction may write its result where one of its operands lies."""
    return writer is not None and any(
        operand is old
        and operand.shape == writer.shape
        and may_overwrite(writer, number, elementwise)
        for number, operand in enumerate(writer.operands)
    )


def lend_memory(
    tables: Mapping[Computation, BufferTable],
    graph: CallGraph,
    places: Iterable[FreeMemory],
    results: frozenset[int],
) -> frozenset[int]:
    """Mark buffers that need no memory of their own as external.

    Args:
        tables: The buffers of every computation that runs, the entry's last.
        graph: Says where computations are called.
        places: Free memory of the entry.
        results: Identities of buffers that are results in memory of their own.

    Returns:
        Identities of the buffers that now lie in the memory of results.
    """
    temporaries = [
        (buffer, *spread.of(buffer))
        for table, spread in zip(tables.values(), _spreads(tables, graph), strict=True)
        for buffer in _temporaries(table, results)
    ]
    return _lend(temporaries, places, list(tables)[-1])


def lend_holes(
    tables: Mapping[Computation, BufferTable], holes: Iterable[Hole], results: frozenset[int]
) -> None:
    """The same for the bodies of loops that carry an array in the memory of a result."""
    places: dict[Computation, list[FreeMemory]] = {}
    for hole in holes:
        if hole.holder is None:
            place = FreeMemory(hole.new.size, hole.new.space, hole.first, hole.last)
            places.setdefault(hole.body, []).append(place)
    for body, free in places.items():
        own = [(one, one.first, one.last) for one in _temporaries(tables[body], results)]
        _lend(own, free, body)


def until_written(result: Buffer, given: Buffer | None = None) -> FreeMemory:
    """The memory of a result, free until it is written; after the last use of what was given."""
    first = given.last + 1 if given is not None else 0
    before = given.instruction if given is not None else None
    return FreeMemory(
        result.size, result.space, first, result.first - 1, result.instruction, before
    )


def _temporaries(table: BufferTable, results: frozenset[int]) -> list[Buffer]:
    return [
        buffer
        for buffer in table.distinct()
        if buffer.size
        and not buffer.external
        and buffer.instruction.opcode != "constant"
        and id(buffer) not in results
    ]


def _lend(
    temporaries: Sequence[tuple[Buffer, float, float]],
    places: Iterable[FreeMemory],
    computation: Computation,
) -> frozenset[int]:
    free = [place for place in places if place.size and place.first <= place.last + 1]
    if not free:
        return frozenset()
    largest = max(place.size for place in free)
    begin, end = min(place.first for place in free) - 1, max(place.last for place in free) + 1
    spaces = {place.space for place in free}
    fitting = [
        (buffer, first, last)
        for buffer, first, last in temporaries
        if buffer.size <= largest and first >= begin and last <= end and buffer.space in spaces
    ]
    if not fitting:
        return frozenset()
    order = _post_order(computation)
    fitting.sort(key=lambda one: (-one[0].size, order.get(one[0].instruction, len(order))))
    shelf = _Shelf(free, order)
    return frozenset(
        id(buffer) for buffer, first, last in fitting if shelf.put(buffer, first, last)
    )


class _Shelf:
    """The free memory in the order in which XLA tries it.

    First where an operand lies, then the latest that was set aside: results by
    increasing size, then the arguments.
    """

    def __init__(self, free: list[FreeMemory], order: Mapping[Instruction, int]) -> None:
        self.groups = []
        for given in (False, True):
            group = [place for place in free if (place.reader_of is not None) is given]
            group.sort(key=lambda place: (place.size, -_rank(place, order)))
            self.groups.append(([place.size for place in group], group))
        self.holding = {place.reader_of: place for place in free if place.reader_of is not None}
        self.elementwise = ElementwiseParameters()

    def put(self, buffer: Buffer, first: float, last: float) -> bool:
        """Mark a buffer as external if there is room for it."""
        for place in self.tried(buffer):
            if (
                place.first - 1 <= first
                and last <= place.last + 1
                and place.take(buffer, first, last, self.elementwise)
            ):
                buffer.external = buffer.lent = True
                self.holding[buffer.instruction] = place
                return True
        return False

    def tried(self, buffer: Buffer) -> Iterator[FreeMemory]:
        for operand in buffer.instruction.operands:
            if operand in self.holding:
                yield self.holding[operand]
        for sizes, group in self.groups:
            smallest = bisect_left(sizes, buffer.size)
            yield from group[smallest : smallest + _TRIED]


def _rank(place: FreeMemory, order: Mapping[Instruction, int]) -> int:
    return order.get(place.writer, 0) if place.writer is not None else 0


class _Spread:
    """Where the positions of a computation lie among those of the entry, as fractions."""

    def __init__(self, first: float, last: float, length: int, *, known: bool) -> None:
        self.first, self.last, self.known = first, last, known
        self.step = (last - first) / (length + 2)

    def of(self, buffer: Buffer) -> tuple[float, float]:
        if not self.known:
            return self.first, self.last
        return (
            self.first + self.step * (buffer.first + 1),
            self.first + self.step * (buffer.last + 1),
        )


def _spreads(tables: Mapping[Computation, BufferTable], graph: CallGraph) -> list[_Spread]:
    """Of each computation; one that several call lies anywhere from the first to the last."""
    found: dict[Computation, _Spread] = {}
    for computation in reversed(list(tables)):
        length = len(computation.instructions)
        spans = [
            _within(found[caller], call.caller.index)
            for call in graph.callers.get(computation, ())
            if (caller := call.caller.computation) in found
        ]
        if not spans:  # the entry: a position is itself
            found[computation] = _Spread(-1.0, length + 1.0, length, known=True)
            continue
        first, last = min(s[0] for s in spans), max(s[1] for s in spans)
        found[computation] = _Spread(first, last, length, known=len(spans) == 1)
    return [found[computation] for computation in tables]


def _within(spread: _Spread, position: int) -> tuple[float, float]:
    """The stretch in which what runs at a position lies, just short of its neighbours."""
    if not spread.known:
        return spread.first, spread.last
    at = spread.first + spread.step * (position + 1)
    return at - spread.step / 4, at + spread.step / 4


def _post_order(computation: Computation) -> dict[Instruction, int]:
    """Operands before users, from the root, last operands first: XLA's order among equals."""
    order: dict[Instruction, int] = {}
    pending = [(computation.root, False)]
    seen: set[Instruction] = set()
    while pending:
        instruction, left = pending.pop()
        if left:
            order[instruction] = len(order)
        elif instruction not in seen:
            seen.add(instruction)
            pending.append((instruction, True))
            pending += [(operand, False) for operand in reversed(instruction.operands)]
    return order
