"""Every product in the program, counted where it stands and multiplied by how often it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hloscope.errors import Unavailable
from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.flops.call_config import nested
from hloscope.passes.flops.convolution import count_convolution, shared_by_groups
from hloscope.passes.flops.counts import Count, Kind, NoProducts, Unmodelled, unknown
from hloscope.passes.flops.custom_calls import read_custom_call
from hloscope.passes.flops.dot import count_dot, count_ragged_dot
from hloscope.passes.flops.fourier import count_fft
from hloscope.passes.flops.linear_algebra import count_cholesky, count_triangular_solve
from hloscope.passes.flops.totals import FlopTotal, Tally, Totals, kinds_of, total_of
from hloscope.passes.multiplicity import Multiplicity, Times
from hloscope.passes.step_parts import is_replay, is_xla_repetition
from hloscope.pipeline.analyses import analysis

__all__ = [
    "CausalConvention",
    "FlopLedger",
    "FlopRow",
    "UnknownCalls",
    "count_flops",
]

CausalConvention = Literal["full", "half"]
"""How masked attention counts: every pair of a query and a key, or those the mask leaves."""


@dataclass(frozen=True, slots=True)
class FlopRow:
    """One instruction that computes a product.

    Attributes:
        instruction: The instruction; its computation and place come with it.
        count: FLOPs of one execution.
        times: How often it runs per execution of the program.
        chain: The calls that lead to it, for example ``while.48 x32 -> fusion.7``.
        cloned: Whether XLA's own rematerialization repeats it: the instruction,
            or a fusion around it.
    """

    instruction: Instruction
    count: Count
    times: Times
    chain: str
    cloned: bool = False

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

    @property
    def recomputed_flops(self) -> int:
        """FLOPs of one execution that compute something again, by XLA's or JAX's doing."""
        if self.cloned or is_replay(self.instruction):
            return self.count.flops or 0
        return self.count.recomputed_flops


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
        transcendentals: Functions such as ``exp`` inside fused attention and
            kernels, counted apart.
        recomputed: The part of ``total`` that computes something again: what
            rematerialization repeats, and the scores in backward attention.
        custom_calls: Custom calls that can run.
        purposes: Those without products, by what they are for.
        unknown_calls: Those that nothing is known of, the most frequent first.
        causal: How masked attention is counted; see :meth:`with_causal`.
    """

    rows: tuple[FlopRow, ...]
    total: FlopTotal
    by_kind: Mapping[Kind, FlopTotal]
    transcendentals: FlopTotal
    recomputed: FlopTotal
    custom_calls: int
    purposes: Mapping[str, int]
    unknown_calls: tuple[UnknownCalls, ...]
    causal: CausalConvention = "full"
    _unmodelled: tuple[Instruction, ...] = field(default=(), repr=False)
    _times: Multiplicity | None = field(default=None, repr=False, compare=False)

    @property
    def custom_calls_understood(self) -> int:
        """Custom calls whose FLOPs or purpose is known."""
        return self.custom_calls - sum(group.calls for group in self.unknown_calls)

    def with_causal(self, convention: CausalConvention) -> FlopLedger:
        """The ledger with masked attention counted the other way.

        A ledger starts out ``full``: every query meets every key, as most
        papers count. ``half`` leaves out the pairs that a causal mask or a
        window hides, for square causal attention about half of them.

        Raises:
            ValueError: The convention is neither, or the ledger was ``half``
                already, whose dense counts are gone.
        """
        if convention not in ("full", "half"):
            raise ValueError(f"the causal convention is 'full' or 'half', not {convention!r}")
        if convention == self.causal or self._times is None:
            return self
        if convention == "full":
            raise ValueError("take the full count from the ledger that the half one was made of")
        rows = tuple(replace(row, count=row.count.without_masked_pairs()) for row in self.rows)
        sums = _sums(rows, self._unmodelled, self._times)
        return replace(
            self,
            rows=rows,
            total=sums[Tally.ALL],
            by_kind=kinds_of(sums),
            transcendentals=sums[Tally.TRANSCENDENTALS],
            recomputed=sums[Tally.RECOMPUTED],
            causal=convention,
        )


def _sums(
    rows: Iterable[FlopRow], unmodelled: Iterable[Instruction], times: Multiplicity
) -> Mapping[Kind | Tally, FlopTotal]:
    totals = Totals(times.graph, times.trips)
    for row in rows:
        totals.add(row.instruction, row.count, row.recomputed_flops)
    for instruction in unmodelled:
        totals.add(instruction, None)
    return totals.finish()


_COUNTERS: Mapping[str, Callable[[Instruction], Count]] = {
    "dot": count_dot,
    "scaled-dot": count_dot,
    "ragged-dot": count_ragged_dot,
    "convolution": count_convolution,
    "fft": count_fft,
    "cholesky": count_cholesky,
    "triangular-solve": count_triangular_solve,
}
_KINDS = {
    "convolution": Kind.CONVOLUTION,
    "fft": Kind.FFT,
    "cholesky": Kind.LINEAR_ALGEBRA,
    "triangular-solve": Kind.LINEAR_ALGEBRA,
}


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
        self.clones: dict[Computation, bool] = {}

    def ledger(self) -> FlopLedger:
        for instruction in self.graph.instructions():
            opcode = instruction.opcode
            if opcode == "custom-call":
                read = self.custom_call(instruction)
            elif opcode in _COUNTERS:
                read = self.product(instruction, opcode)
            else:
                continue
            if isinstance(read, Count):
                self.rows.append(self.row(instruction, read))
        unmodelled = tuple(call for calls in self.unmodelled.values() for call in calls)
        sums = _sums(self.rows, unmodelled, self.times)
        return FlopLedger(
            tuple(self.rows),
            sums[Tally.ALL],
            kinds_of(sums),
            sums[Tally.TRANSCENDENTALS],
            sums[Tally.RECOMPUTED],
            self.custom_calls,
            dict(self.purposes.most_common()),
            self.unknown_calls(),
            _unmodelled=unmodelled,
            _times=self.times,
        )

    def row(self, instruction: Instruction, count: Count) -> FlopRow:
        computation = instruction.computation
        if computation not in self.chains:
            self.chains[computation] = self.times.chain(computation)
        cloned = is_xla_repetition(instruction) or self.in_clone(computation)
        return FlopRow(
            instruction, count, self.times[computation], self.chains[computation], cloned
        )

    def in_clone(self, computation: Computation) -> bool:
        """Whether only fusions that XLA cloned run a computation."""
        if computation not in self.clones:
            callers = [call.caller for call in self.graph.callers.get(computation, ())]
            self.clones[computation] = bool(callers) and all(
                caller.opcode == "fusion"
                and (is_xla_repetition(caller) or self.in_clone(caller.computation))
                for caller in callers
            )
        return self.clones[computation]

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
