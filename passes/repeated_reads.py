"""Sums that read an array again which another launch has at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.ir import Computation, Instruction, Module
from hloscope.passes.collectives import Collectives
from hloscope.passes.execution import Execution
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.layout_changes import LayoutChanges
from hloscope.passes.multiplicity import Times
from hloscope.passes.operand_reads import OperandReads
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.analyses import analysis

__all__ = ["RepeatedRead", "RepeatedReads", "find_repeated_reads"]

_NAMES = frozenset({"bitcast", "get-tuple-element"})
_REDUCES = frozenset({"reduce", "reduce-window"})
_PRODUCTS = frozenset({Kind.MATMUL, Kind.CONVOLUTION, Kind.ATTENTION, Kind.LINEAR_ALGEBRA})
# Launches that work through their operands from front to back and nothing else.
_PASSES = frozenset(
    """
    abs add and clamp compare convert cosine divide exponential exponential-minus-one fusion log
    log-plus-one logistic maximum minimum multiply negate not or power reduce reduce-window rsqrt
    select sign sine sqrt subtract tanh xor
    """.split()  # noqa: SIM905
)
_SMALLER = 4  # times that a sum is smaller than what it sums


@dataclass(frozen=True, slots=True)
class RepeatedRead:
    """One array that sums read once more than they need to.

    Attributes:
        array: What makes it, or hands it on in a loop's body.
        sums: Launches that read it again only to sum it, in the order of the schedule.
        beside: The launch in whose pass they could be summed: it writes the array, or
            reads it anyway. It may be a sum itself.
        written: Whether that launch writes it.
        bytes: Bytes that the sums read again in one run of the computation.
        times: Runs of the computation per execution of the program.
    """

    array: Instruction
    sums: tuple[Instruction, ...]
    beside: Instruction
    written: bool
    bytes: int
    times: Times

    @property
    def nominal_bytes(self) -> int:
        """Bytes per execution of the program, loops of unknown length run once."""
        return self.bytes * self.times.nominal


@dataclass(frozen=True, slots=True)
class RepeatedReads:
    """The arrays of a program that sums read again.

    Attributes:
        rows: In the order of the schedule.
    """

    rows: tuple[RepeatedRead, ...]


@analysis
def find_repeated_reads(
    module: Module,
    execution: Execution,
    collectives: Collectives,
    ledger: FlopLedger,
    traffic: Traffic,
    layouts: LayoutChanges,
    reads: OperandReads,
) -> RepeatedReads:
    """Find launches that sum an array which another one reads or writes, neither waiting.

    Considered are fusions, sums and element-by-element operations without a product, that
    are no change of layout. Two of them can be one pass where none needs what the other
    one makes but for the array itself: XLA's own condition for a fusion of several
    results. Linear in the instructions, for each array that is summed in several.

    Raises:
        Unavailable: The module is not scheduled: what is a launch is not decided.
    """
    if not module.header.is_scheduled:
        raise Unavailable("the module is not scheduled: take the optimized one")
    apart = {execution.launch_of(r.instruction) for r in ledger.rows if r.count.kind in _PRODUCTS}
    apart |= {change.row.instruction for change in layouts.rows}
    apart |= set(collectives.by_launch)
    rows: list[RepeatedRead] = []
    by_computation: dict[Computation, list[Instruction]] = {}
    for row in traffic.rows:
        launch = row.instruction
        if launch.opcode in _PASSES and launch not in apart and not execution.runs_beside(launch):
            by_computation.setdefault(launch.computation, []).append(launch)
    for computation, launches in by_computation.items():
        order = _Order(computation)
        times = execution.times[computation]
        for array, readers in _by_array(launches, reads).items():
            rows += _repeated(array[0], readers, set(launches), order, times)
    return RepeatedReads(tuple(rows))


_Readers = dict[Instruction, int]
"""Bytes that each launch reads of an array."""


def _by_array(
    launches: Sequence[Instruction], reads: OperandReads
) -> dict[tuple[Instruction, int | None], _Readers]:
    """Readers by array, of those that some launch sums."""
    found: dict[tuple[Instruction, int | None], _Readers] = {}
    for launch in launches:
        for operand, read in reads.whole(launch):
            readers = found.setdefault(_behind_names(operand), {})
            readers[launch] = max(read, readers.get(launch, 0))
    return {
        array: readers
        for array, readers in found.items()
        if any(_only_sums(launch, read) for launch, read in readers.items())
    }


def _behind_names(value: Instruction) -> tuple[Instruction, int | None]:
    """The instruction that makes an array, and which of its results it is."""
    member = None
    while value.opcode in _NAMES and value.operands:
        if value.opcode == "get-tuple-element":
            member = value.tuple_index
        value = value.operands[0]
    return value, member


def _only_sums(launch: Instruction, read: int) -> bool:
    """Whether all that a launch makes of an array is much smaller than the array."""
    written = sum(leaf.padded_bytes for leaf in launch.shape.leaves() if leaf.is_array)
    if written * _SMALLER > read:
        return False
    if launch.opcode in _REDUCES:
        return True
    return any(
        inside.opcode in _REDUCES for called in launch.called for inside in called.instructions
    )


def _repeated(
    array: Instruction,
    readers: Mapping[Instruction, int],
    launches: set[Instruction],
    order: _Order,
    times: Times,
) -> Iterator[RepeatedRead]:
    sums = [launch for launch in readers if _only_sums(launch, readers[launch])]
    if array in launches:
        # What needs the array in another way, too, cannot be computed as it is written.
        at_once = [launch for launch in sums if not order.waits_twice(launch, array)]
        if at_once:
            size = sum(readers[launch] for launch in at_once)
            yield RepeatedRead(array, tuple(at_once), array, True, size, times)
        sums = [launch for launch in sums if launch not in at_once]
    rest = [*sums, *(launch for launch in readers if launch not in sums)]
    while sums:
        # One pass of a sum and of what else reads the array without waiting for it.
        first = sums.pop(0)
        together = [first]
        for other in rest:
            if other not in together and not any(order.depend(other, one) for one in together):
                together.append(other)
        others = [launch for launch in together if launch not in sums and launch is not first]
        beside = others[0] if others else first
        again = [one for one in together if one is not beside and _only_sums(one, readers[one])]
        if again:
            size = sum(readers[launch] for launch in again)
            yield RepeatedRead(array, tuple(order.sorted(again)), beside, False, size, times)
        sums = [launch for launch in sums if launch not in together]
        rest = [launch for launch in rest if launch not in together]


class _Order:
    """Which launches of a computation wait for which."""

    def __init__(self, computation: Computation) -> None:
        self._places = {value: n for n, value in enumerate(computation.instructions)}
        self._after: dict[Instruction, set[Instruction]] = {}

    def sorted(self, launches: Iterable[Instruction]) -> list[Instruction]:
        """In the order of the schedule."""
        return sorted(launches, key=self._places.__getitem__)

    def depend(self, one: Instruction, other: Instruction) -> bool:
        """Whether one of two launches needs what the other one makes."""
        first, second = self.sorted((one, other))
        return second in self._all_after(first)

    def waits_twice(self, launch: Instruction, array: Instruction) -> bool:
        """Whether a launch needs an array not only as it is, but also something made of it."""
        after = self._all_after(array)
        return any(
            operand in after and _behind_names(operand)[0] is not array
            for operand in launch.operands
        )

    def _all_after(self, value: Instruction) -> set[Instruction]:
        found = self._after.get(value)
        if found is None:
            found = self._after[value] = set()
            pending = [value]
            while pending:
                for user in pending.pop().users:
                    if user not in found:
                        found.add(user)
                        pending.append(user)
        return found
