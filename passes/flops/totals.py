"""Sums of FLOPs with the range that loops and branches leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import CallGraph, CallKind
from hloscope.passes.flops.counts import Count, Kind
from hloscope.passes.multiplicity import Times, call_times
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.findings import Basis, Quantity, Unit

__all__ = ["NOTHING", "FlopTotal", "Tally", "Totals", "kinds_of", "total_of"]


@dataclass(frozen=True, slots=True)
class FlopTotal:
    """A sum of FLOPs.

    Attributes:
        low: At least this many.
        high: At most this many; ``None`` where something unknown may add to it.
        nominal: With the dearest branch of each conditional taken, loops of
            unknown length run once, and nothing for what is unknown. XLA's own
            cost analysis takes branches and loops this way.
        models: Names of the models that modelled parts rest on.
    """

    low: int
    high: int | None
    nominal: int
    models: frozenset[str] = frozenset()

    @property
    def basis(self) -> Basis:
        """How the sum is known."""
        if self.low != self.high:
            return Basis.BOUNDED if self.low or self.high is not None else Basis.UNKNOWN
        return Basis.MODELLED if self.models else Basis.EXACT

    def quantity(self, name: str) -> Quantity:
        """The sum as evidence: the number, else its lower bound, else its upper one."""
        basis = self.basis
        if basis is Basis.UNKNOWN:
            return Quantity(name, None, Unit.FLOPS, basis)
        if basis is not Basis.BOUNDED:
            model = ", ".join(sorted(self.models)) or None
            return Quantity(name, self.low, Unit.FLOPS, basis, model)
        if self.low:
            return Quantity(name, self.low, Unit.FLOPS, basis, "lower bound")
        return Quantity(name, self.high, Unit.FLOPS, basis, "upper bound")

    def __add__(self, other: FlopTotal) -> FlopTotal:
        high = None if self.high is None or other.high is None else self.high + other.high
        return FlopTotal(
            self.low + other.low, high, self.nominal + other.nominal, self.models | other.models
        )

    def times(self, factor: Times) -> FlopTotal:
        """The sum of running it so often."""
        if self.high == 0 or factor.high == 0:
            return NOTHING
        high = None if self.high is None or factor.high is None else self.high * factor.high
        return FlopTotal(self.low * factor.low, high, self.nominal * factor.nominal, self.models)


NOTHING = FlopTotal(0, 0, 0)
_UNKNOWN = FlopTotal(0, None, 0)


class Tally(StrEnum):
    """What is summed beside the kinds."""

    ALL = "all"
    TRANSCENDENTALS = "transcendentals"
    RECOMPUTED = "recomputed"


Sums = Mapping[Kind | Tally, FlopTotal]
_Sums = dict[Kind | Tally, FlopTotal]


def total_of(count: Count | None, times: Times) -> FlopTotal:
    """FLOPs of something that runs so often; no count means that it is unknown."""
    return _once(count).times(times)


def _once(count: Count | None) -> FlopTotal:
    return _UNKNOWN if count is None else _part(count, count.flops)


def _part(count: Count, number: int | None) -> FlopTotal:
    """One of a count's numbers, known as well as its FLOPs are."""
    if count.flops is None or number is None:
        return _UNKNOWN
    low = 0 if count.basis is Basis.BOUNDED else number
    models = frozenset({count.model}) if count.basis is Basis.MODELLED else frozenset()
    return FlopTotal(low, number, number, models)


class Totals:
    """Sums a program's FLOPs from its innermost computations outwards.

    Summing rows times their multiplicities would count both branches of a
    conditional at the top of the range; going outwards keeps them apart.
    """

    def __init__(
        self, graph: CallGraph, trips: TripCounts, *, skip: frozenset[CallKind] = frozenset()
    ) -> None:
        """Begin with nothing.

        Args:
            graph: The calls to sum along.
            trips: How often loops run.
            skip: Calls not to follow, as their callers account for them.
        """
        self.graph = graph
        self.trips = trips
        self.skip = skip
        self.own: dict[Computation, _Sums] = {}

    def add(self, instruction: Instruction, count: Count | None, recomputed: int = 0) -> None:
        """Take in one instruction; no count means that its FLOPs are unknown.

        Args:
            instruction: Where it stands.
            count: What one execution costs.
            recomputed: The part of it that computes something again.
        """
        sums = self.own.setdefault(instruction.computation, {})
        total = _once(count)
        _increase(sums, {Tally.ALL: total})
        if count is None or count.flops is None:
            _increase(sums, {Tally.TRANSCENDENTALS: _UNKNOWN, Tally.RECOMPUTED: _UNKNOWN})
        if count is None:
            return
        _increase(sums, {count.kind: total})
        if count.transcendentals:
            _increase(sums, {Tally.TRANSCENDENTALS: _part(count, count.transcendentals)})
        if recomputed:
            _increase(sums, {Tally.RECOMPUTED: _part(count, recomputed)})

    def add_exact(
        self, computation: Computation, by_kind: Mapping[Kind, int], transcendentals: int
    ) -> None:
        """Take in what many instructions of one computation take exactly."""
        sums = self.own.setdefault(computation, {})
        for kind, flops in by_kind.items():
            total = FlopTotal(flops, flops, flops)
            _increase(sums, {kind: total, Tally.ALL: total})
        if transcendentals:
            total = FlopTotal(transcendentals, transcendentals, transcendentals)
            _increase(sums, {Tally.TRANSCENDENTALS: total})

    def finish(self) -> Sums:
        """Sums of the whole program; what it has nothing of stands as zero or is absent."""
        done: dict[Computation, _Sums] = {}
        for computation in self.graph.order:
            sums = dict(self.own.get(computation, {}))
            branches: dict[Instruction, list[_Sums]] = {}
            for call in self.graph.calls[computation]:
                callee = done[call.callee]
                if call.kind in self.skip:
                    continue
                if call.kind is CallKind.BRANCH:
                    branches.setdefault(call.caller, []).append(callee)
                elif callee:
                    factor = call_times(call, self.trips)
                    _increase(sums, {kind: total.times(factor) for kind, total in callee.items()})
            for taken in branches.values():
                _increase(sums, _one_of(taken))
            done[computation] = sums
        whole = done[self.graph.order[-1]]
        return dict.fromkeys(Tally, NOTHING) | whole


def kinds_of(sums: Sums) -> Mapping[Kind, FlopTotal]:
    """The sums by kind, for the kinds that occur."""
    return {kind: sums[kind] for kind in Kind if kind in sums}


def _increase(sums: _Sums, more: _Sums) -> None:
    for kind, total in more.items():
        sums[kind] = sums[kind] + total if kind in sums else total


def _one_of(branches: Sequence[_Sums]) -> _Sums:
    """What a conditional costs that runs one of its branches."""
    dearest = max(branches, key=lambda sums: sums.get(Tally.ALL, NOTHING).nominal)
    result: _Sums = {}
    for kind in {kind: None for sums in branches for kind in sums}:
        totals = [sums.get(kind, NOTHING) for sums in branches]
        highs = [total.high for total in totals if total.high is not None]
        result[kind] = FlopTotal(
            min(total.low for total in totals),
            max(highs) if len(highs) == len(totals) else None,
            dearest.get(kind, NOTHING).nominal,
            frozenset().union(*(total.models for total in totals)),
        )
    return result
