"""Loops whose iterations compute chunks of one product, and what taking chunks costs and saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.ir import Computation, Instruction, Module, Shape
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.execution import Execution
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.memory_spaces import Space, space_of
from hloscope.passes.multiplicity import Times
from hloscope.passes.operand_reads import OperandReads
from hloscope.passes.traffic import Traffic, TrafficRow
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.analyses import analysis

__all__ = ["ChunkedLoop", "ChunkedLoops", "find_chunked_loops"]

_NAMES = frozenset(
    "bitcast constant get-tuple-element opt-barrier parameter tuple".split()  # noqa: SIM905
)
_HANDS_ON = frozenset({"bitcast", "copy", "opt-barrier"})
_NOT_THE_SAME = frozenset({"custom-call", "infeed", "recv", "rng", "rng-bit-generator", "tuple"})
_WHOLE = 0.5  # share of an array from which a launch reads all of it


@dataclass(frozen=True, slots=True)
class ChunkedLoop:
    """A loop of which no product waits for what an earlier iteration computed.

    Attributes:
        loop: Its ``while``.
        chunks: Its iterations.
        products: The products in it, the dearest first.
        reread: Bytes that an iteration reads of arrays that are the same in all of them, and
            moves to make such arrays.
        added: Bytes that an iteration reads and writes of arrays that all of them add to.
        launches: Kernels of an iteration.
        held: Bytes of the arrays that an iteration makes for itself, as many as live at a
            time, none in the place of another.
        kept: Bytes that an iteration writes and reads of arrays that a TPU keeps in its vector
            memory, which larger ones would not fit into.
        times: Runs of the loop per execution of the program.
    """

    loop: Instruction
    chunks: int
    products: tuple[FlopRow, ...]
    reread: int
    added: int
    launches: int
    held: int
    kept: int
    times: Times

    def extra_bytes(self, chunks: int) -> int:
        """Bytes that the loop moves beyond what it would with fewer chunks, in one run of it.

        Negative where chunks save traffic, if all that stays on the chip now would not then.
        """
        return (self.reread + self.added) * (self.chunks - chunks) - self.kept * self.chunks

    def extra_memory(self, chunks: int) -> int:
        """Bytes of memory that fewer, larger chunks would take at most beyond these."""
        return -(-self.held * self.chunks // chunks) - self.held

    def divisors(self) -> list[int]:
        """Smaller numbers of chunks of one size, the smallest first."""
        return [fewer for fewer in range(1, self.chunks) if self.chunks % fewer == 0]


@dataclass(frozen=True, slots=True)
class ChunkedLoops:
    """The loops over chunks of a program.

    Attributes:
        rows: Callees' first.
    """

    rows: tuple[ChunkedLoop, ...]


@analysis
def find_chunked_loops(
    module: Module,
    graph: CallGraph,
    execution: Execution,
    trips: TripCounts,
    ledger: FlopLedger,
    traffic: Traffic,
    reads: OperandReads,
) -> ChunkedLoops:
    """Follow in each loop what depends on what an earlier iteration left; linear.

    A loop counts where its length is known, it has no loop inside, and each side of each
    of its products comes of the counter, of what all iterations share and of slices of
    that. What iterations only add up or write into a stack does not keep them apart.

    Raises:
        Unavailable: The module is not scheduled: what is a launch is not decided.
    """
    if not module.header.is_scheduled:
        raise Unavailable("the module is not scheduled: take the optimized one")
    products: dict[Computation, list[FlopRow]] = {}
    for row in ledger.rows:
        launch = execution.launch_of(row.instruction)
        if row.count.kind is Kind.MATMUL and launch is not None and row.nominal:
            products.setdefault(launch.computation, []).append(row)
    launches: dict[Computation, list[TrafficRow]] = {}
    for moved in traffic.rows:
        launches.setdefault(moved.instruction.computation, []).append(moved)
    rows = []
    for loop in trips:
        body = loop.callee("body")
        count = trips[loop].count
        if body is None or count is None or count < 2 or not products.get(body):
            continue
        if any(one.opcode in ("while", "conditional", "call") for one in body.instructions):
            continue
        inside = _Body(body, graph, reads)
        if all(inside.is_of_a_chunk(row.instruction) for row in products[body]):
            dearest = tuple(sorted(products[body], key=lambda row: -row.nominal))
            times = execution.times[loop.computation]
            rows.append(inside.row(loop, count, dearest, launches.get(body, []), times))
    return ChunkedLoops(tuple(row for row in rows if row.reread or row.added))


class _Body:
    """What the values of a loop's body come of."""

    def __init__(self, body: Computation, graph: CallGraph, reads: OperandReads) -> None:
        self.body = body
        self.graph = graph
        self.reads = reads
        self.results = body.root.operands if body.root.opcode == "tuple" else ()
        self.shared = {
            index for index, value in enumerate(self.results) if self._carried(value) == index
        }
        self.earlier = self._of_earlier()
        self.same = self._same_in_all()

    def _carried(self, value: Instruction) -> int | None:
        """Which element of the loop's tuple a value is, as the iteration finds it."""
        while True:
            if value.opcode == "get-tuple-element" and value.operands:
                source, index = value.operands[0], value.tuple_index or 0
                if source.opcode == "opt-barrier" and source.operands:
                    source = source.operands[0]
                if source.opcode == "parameter":
                    return index
                if source.opcode != "tuple" or index >= len(source.operands):
                    return None
                value = source.operands[index]
            elif value.opcode in _HANDS_ON and value.operands:
                value = value.operands[0]
            else:
                return None

    def _of_earlier(self) -> set[Instruction]:
        """What depends on more of the iterations before than how many there were."""
        found: set[Instruction] = set()
        for value in self.body.instructions:
            if value.opcode in ("parameter", "tuple"):
                continue
            index = self._carried(value)
            if index is not None:
                counter = value.shape.is_array and value.shape.rank == 0
                if index not in self.shared and not (counter and value.shape.dtype[0] in "su"):
                    found.add(value)
            elif any(source in found for source in _sources(value)):
                found.add(value)
        return found

    def _same_in_all(self) -> set[Instruction]:
        """What comes of shared arrays and numbers alone."""
        found: set[Instruction] = set()
        for value in self.body.instructions:
            index = self._carried(value)
            if index is not None:
                if index in self.shared:
                    found.add(value)
            elif value.opcode == "constant" or (
                value.operands
                and value.opcode not in _NOT_THE_SAME
                and all(source in found for source in _sources(value))
            ):
                found.add(value)
        return found

    def is_of_a_chunk(self, product: Instruction) -> bool:
        """Whether both sides of a product are made without what iterations before left."""
        return not any(
            value in self.earlier
            for operand in product.operands[:2]
            for value in self._in_body(operand)
        )

    def _in_body(self, operand: Instruction) -> Iterator[Instruction]:
        """Values of the body that an operand comes of; itself, or what its fusion is given."""
        if operand.computation is self.body:
            yield operand
            return
        pending, seen = [operand], {operand}
        while pending:
            value = pending.pop()
            if value.opcode == "parameter":
                callers = (call.caller for call in self.graph.callers.get(value.computation, ()))
                outer = next((one for one in callers if one.opcode == "fusion"), None)
                number = value.parameter_number or 0
                if outer is None or number >= len(outer.operands):
                    continue
                yield from self._in_body(outer.operands[number])
                continue
            for one in value.operands:
                if one not in seen:
                    seen.add(one)
                    pending.append(one)

    def row(
        self,
        loop: Instruction,
        chunks: int,
        products: tuple[FlopRow, ...],
        launches: list[TrafficRow],
        times: Times,
    ) -> ChunkedLoop:
        """Add up what an iteration moves for being one of several."""
        reread = added = kept = 0
        for moved in launches:
            launch = moved.instruction
            written = moved.written.get(Space.DEVICE, 0)
            if not _only_moves(launch):
                kept += 2 * moved.written.get(Space.ON_CHIP, 0)
            if launch in self.same:
                reread += moved.read.get(Space.DEVICE, 0) + written
                continue
            for operand, size in dict(self.reads.whole(launch)).items():
                index = self._carried(operand)
                if operand in self.same:
                    reread += size
                elif index is not None and self._adds(launch, index, written, size):
                    added += 2 * size
        return ChunkedLoop(
            loop=loop,
            chunks=chunks,
            products=products,
            reread=reread,
            added=added,
            launches=len(launches),
            held=self._held(),
            kept=kept,
            times=times,
        )

    def _adds(self, launch: Instruction, index: int, written: int, size: int) -> bool:
        """Whether a launch writes all of an element of the loop's tuple that it reads."""
        if index >= len(self.results) or written < _WHOLE * size:
            return False
        value = self.results[index]
        while value.opcode in ("get-tuple-element", *_HANDS_ON) and value.operands:
            value = value.operands[0]
        return value is launch

    def _held(self) -> int:
        """The most bytes of the body's own arrays that live at a time, in its order."""
        places = {value: n for n, value in enumerate(self.body.instructions)}
        # What all iterations share does not grow with a chunk, and neither does what they add to.
        kept = set(self.same)
        for value in self.results:
            while value.opcode in ("get-tuple-element", *_HANDS_ON) and value.operands:
                value = value.operands[0]
            kept.add(value)
        frees: dict[int, int] = {}
        alive = most = 0
        for place, value in enumerate(self.body.instructions):
            if value.opcode not in _NAMES and value not in kept:
                size = self._size(value.shape)
                alive += size
                end = self._last_use(value, places)
                frees[end] = frees.get(end, 0) + size
            most = max(most, alive)
            alive -= frees.get(place, 0)
        return most

    def _last_use(self, value: Instruction, places: dict[Instruction, int]) -> int:
        """The place of the last user, names of the value followed."""
        last = places[value]
        pending, seen = [value], {value}
        while pending:
            for user in pending.pop().users:
                last = max(last, places[user])
                if user.opcode in _NAMES and user not in seen:
                    seen.add(user)
                    pending.append(user)
        return last

    def _size(self, shape: Shape) -> int:
        return sum(
            leaf.padded_bytes
            for leaf in shape.leaves()
            if leaf.is_array and space_of(leaf, on_chip=self.reads.on_chip) is Space.DEVICE
        )


def _sources(value: Instruction) -> Sequence[Instruction]:
    """Its operands; of an element of a tuple that is put together here only that element."""
    if value.opcode == "get-tuple-element" and value.operands:
        source, index = value.operands[0], value.tuple_index or 0
        if source.opcode == "opt-barrier" and source.operands:
            source = source.operands[0]
        if source.opcode == "tuple" and index < len(source.operands):
            return (source.operands[index],)
    return value.operands


def _only_moves(launch: Instruction) -> bool:
    return launch.opcode.endswith(("-start", "-done")) or launch.opcode == "copy"
