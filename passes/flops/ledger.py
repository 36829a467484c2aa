"""Every product in the program, counted where it stands and multiplied by how often it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.flops.call_config import nested
from hloscope.passes.flops.convolution import count_convolution, shared_by_groups
from hloscope.passes.flops.counts import Count, Kind, unknown
from hloscope.passes.flops.custom_calls import NoProducts, Unmodelled, read_custom_call
from hloscope.passes.flops.dot import count_dot, count_ragged_dot
from hloscope.passes.flops.totals import FlopTotal, Totals, total_of
from hloscope.passes.multiplicity import Multiplicity, Times
from hloscope.pipeline.analyses import analysis

__all__ = ["FlopLedger", "FlopRow", "UnknownCalls", "count_flops"]


@dataclass(frozen=True, slots=True)
class FlopRow:
    """One instruction that computes a product.

    Attributes:
        instruction: The instruction; its computation and place come with it.
        count: FLOPs of one execution.
        times: How often it runs per execution of the program.
        chain: The calls that lead to it, for example ``while.48 x32 -> fusion.7``.
    """

    instruction: Instruction
    count: Count
    times: Times
    chain: str

    @property
    def nominal(self) -> int:
        """FLOPs per execution, each branch taken and each unknown loop run once.

        A row whose count is unknown weighs nothing.
        """
        return (self.count.flops or 0) * self.times.nominal

    @property
    def total(self) -> FlopTotal:
        """FLOPs per execution of the program."""
        return total_of(self.count, self.times)


@dataclass(frozen=True, slots=True)
class UnknownCalls:
    """Custom calls of one target whose FLOPs are unknown.

    Attributes:
        target: The custom call's target.
        calls: How many instructions call it.
        times: How often they run altogether.
        operands: Shapes of the first one's operands, as HLO text.
        result: Shape of the first one's result.
        example: The first one.
        reason: Why nothing is counted.
    """

    target: str
    calls: int
    times: Times
    operands: tuple[str, ...]
    result: str
    example: Instruction
    reason: str


@dataclass(frozen=True, slots=True)
class FlopLedger:
    """FLOPs of all products of a program. Elementwise work is not among them.

    Attributes:
        rows: One for each instruction that computes a product, callees' first.
        total: The headline: products of every kind.
        by_kind: The same by kind, for the kinds that occur.
        custom_calls: Custom calls that can run.
        purposes: Those without products, by what they are for.
        unknown_calls: Those that nothing is known of, the most frequent first.
    """

    rows: tuple[FlopRow, ...]
    total: FlopTotal
    by_kind: Mapping[Kind, FlopTotal]
    custom_calls: int
    purposes: Mapping[str, int]
    unknown_calls: tuple[UnknownCalls, ...]

    @property
    def custom_calls_understood(self) -> int:
        """Custom calls whose FLOPs or purpose is known."""
        return self.custom_calls - sum(group.calls for group in self.unknown_calls)


_COUNTERS: Mapping[str, Callable[[Instruction], Count]] = {
    "dot": count_dot,
    "scaled-dot": count_dot,
    "ragged-dot": count_ragged_dot,
    "convolution": count_convolution,
}
_KINDS = {"convolution": Kind.CONVOLUTION}


@analysis
def count_flops(graph: CallGraph, times: Multiplicity) -> FlopLedger:
    """Count every product that the entry reaches.

    Products inside fusions, calls, loops and asynchronous wrappers are counted
    in the computation that holds them, once, and multiplied by how often that
    runs. Of an asynchronous pair only the start counts.
    """
    return _Reading(graph, times).ledger()


class _Reading:
    """One walk over the instructions."""

    def __init__(self, graph: CallGraph, times: Multiplicity) -> None:
        self.graph = graph
        self.times = times
        self.rows: list[FlopRow] = []
        self.purposes: Counter[str] = Counter()
        self.unmodelled: dict[tuple[str, str], list[Instruction]] = {}
        self.custom_calls = 0
        self.chains: dict[Computation, str] = {}

    def ledger(self) -> FlopLedger:
        totals = Totals(self.graph, self.times.trips)
        for instruction in self.graph.instructions():
            opcode = instruction.opcode.removesuffix("-start")
            if opcode == "custom-call":
                read = self.custom_call(instruction)
            elif opcode in _COUNTERS:
                read = self.product(instruction, opcode)
            else:
                continue
            if isinstance(read, Count):
                totals.add(instruction, read)
                self.rows.append(self.row(instruction, read))
            elif isinstance(read, Unmodelled):
                totals.add(instruction, None)
        by_kind, total = totals.finish()
        return FlopLedger(
            tuple(self.rows),
            total,
            by_kind,
            self.custom_calls,
            dict(self.purposes.most_common()),
            self.unknown_calls(),
        )

    def row(self, instruction: Instruction, count: Count) -> FlopRow:
        computation = instruction.computation
        if computation not in self.chains:
            self.chains[computation] = self.times.chain(computation)
        return FlopRow(instruction, count, self.times[computation], self.chains[computation])

    def product(self, instruction: Instruction, opcode: str) -> Count:
        try:
            count = _COUNTERS[opcode](instruction)
        except (ValueError, IndexError, Unavailable) as error:
            return unknown(_KINDS.get(opcode, Kind.MATMUL), _complaint(error))
        if opcode == "convolution":
            groups = self.ragged_groups(instruction)
            if groups > 1:
                return shared_by_groups(count, groups)
        return count

    def ragged_groups(self, instruction: Instruction) -> int:
        """Groups of a ragged product that a TPU compiler wrote as a dense convolution.

        The mark stands in the configuration of the convolution or of a fusion
        around it.
        """
        place: Instruction | None = instruction
        while place is not None:
            config = nested(place.backend_config, "convolution_algorithm_config")
            if config.get("is_ragged_dot"):
                text = str(config.get("num_groups_in_ragged_dot", ""))
                return int(text) if text.isdecimal() else 1
            callers = self.graph.callers.get(place.computation, ())
            around = callers[0].caller if callers else None
            place = around if around is not None and around.opcode == "fusion" else None
        return 1

    def custom_call(self, instruction: Instruction) -> Count | NoProducts | Unmodelled:
        self.custom_calls += 1
        try:
            read = read_custom_call(instruction)
        except (ValueError, IndexError, Unavailable) as error:
            read = Unmodelled(_complaint(error))
        if isinstance(read, NoProducts):
            self.purposes[read.purpose] += 1
        if isinstance(read, Count) and read.flops is None:
            read = Unmodelled(read.note)
        if isinstance(read, Unmodelled):
            key = (instruction.custom_call_target or "", read.reason)
            self.unmodelled.setdefault(key, []).append(instruction)
        return read

    def unknown_calls(self) -> tuple[UnknownCalls, ...]:
        groups = []
        for (target, reason), calls in self.unmodelled.items():
            times = self.times[calls[0].computation]
            for call in calls[1:]:
                times += self.times[call.computation]
            groups.append(
                UnknownCalls(
                    target,
                    len(calls),
                    times,
                    tuple(str(operand.shape) for operand in calls[0].operands),
                    str(calls[0].shape),
                    calls[0],
                    reason,
                )
            )
        return tuple(sorted(groups, key=lambda group: (-group.times.nominal, group.target)))


def _complaint(error: ValueError | IndexError | Unavailable) -> str:
    if isinstance(error, IndexError):
        return "its dimension numbers do not fit its operands"
    return str(error)
