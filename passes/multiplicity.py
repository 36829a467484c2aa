"""How often each computation runs in one execution of the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hloscope.errors import InputError, Unavailable
from hloscope.ir import Computation, Module
from hloscope.passes.applications import applications
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = ["NEVER", "ONCE", "Multiplicity", "Times", "call_times", "multiplicity"]

_MOST = 1 << 63  # more than this no computer runs; a text that says so was made up
_CHAIN_LINKS = 12


@dataclass(frozen=True, slots=True)
class Times:
    """How often something runs.

    Attributes:
        low: At least this often.
        high: At most this often; ``None`` where nothing bounds it.
        nominal: What to weigh it with where ``low`` and ``high`` differ: every
            branch is taken, and a loop of unknown length runs once. This is
            how XLA's own cost analysis treats all loops.
    """

    low: int
    high: int | None
    nominal: int

    @property
    def exact(self) -> int | None:
        """The number, where it is known."""
        return self.low if self.low == self.high else None

    @property
    def basis(self) -> Basis:
        """Exact, bounded (from above too), or unknown."""
        if self.high is None:
            return Basis.UNKNOWN
        return Basis.EXACT if self.low == self.high else Basis.BOUNDED

    def __add__(self, other: Times) -> Times:
        high = None if self.high is None or other.high is None else self.high + other.high
        return Times(self.low + other.low, high, self.nominal + other.nominal)

    def __mul__(self, other: Times) -> Times:
        high = None if self.high is None or other.high is None else self.high * other.high
        if self.high == 0 or other.high == 0:
            high = 0
        return Times(self.low * other.low, high, self.nominal * other.nominal)

    def __str__(self) -> str:
        if self.exact is not None:
            return str(self.exact)
        return f"{self.low}..{'?' if self.high is None else self.high}"


NEVER = Times(0, 0, 0)
ONCE = Times(1, 1, 1)
_MAYBE = Times(0, 1, 1)
_UNKNOWN = Times(0, None, 1)


@dataclass(frozen=True, slots=True)
class Multiplicity(Mapping[Computation, Times]):
    """Executions of each computation per execution of the entry.

    A computation that the entry does not reach is not in it.
    """

    times: Mapping[Computation, Times]
    graph: CallGraph
    trips: TripCounts

    def __getitem__(self, computation: Computation) -> Times:
        return self.times[computation]

    def __iter__(self) -> Iterator[Computation]:
        return iter(self.times)

    def __len__(self) -> int:
        return len(self.times)

    def chain(self, computation: Computation) -> str:
        """The calls that lead to a computation, outermost first.

        For example ``while.48 x32 -> fusion.7``; empty for the entry. Of
        several callers the first is followed and the rest are counted.
        """
        links: list[str] = []
        while callers := self.graph.callers.get(computation, ()):
            if len(links) == _CHAIN_LINKS:
                links.append("...")
                break
            times = call_times(callers[0], self.trips)
            link = callers[0].caller.name
            if times != ONCE:
                link += f" x{times}"
            if len(callers) > 1:
                link += f" (and {len(callers) - 1} more)"
            links.append(link)
            computation = callers[0].caller.computation
        return " -> ".join(reversed(links))


@analysis
def multiplicity(module: Module, graph: CallGraph, trips: TripCounts) -> Multiplicity:
    """Multiply along the calls, from the entry down; linear in the number of calls.

    Raises:
        InputError: Some computation would run more than 2^63 times.
    """
    times = dict.fromkeys(graph.order, NEVER)
    times[module.entry] = ONCE
    for computation in reversed(graph.order):
        own = times[computation]
        if own.nominal > _MOST or own.low > _MOST:
            raise InputError(
                f"computation %{computation.name} would run more than 2^63 times",
                place=module.file,
                hint="Check the trip counts in the file; no program of this kind ever ends.",
            )
        for call in graph.calls[computation]:
            times[call.callee] += own * call_times(call, trips)
    return Multiplicity(times, graph, trips)


def call_times(call: Call, trips: TripCounts) -> Times:
    """How often one execution of the caller runs the callee.

    A condition is evaluated once more than its body. A reducer is applied as
    often as its caller's shapes say.
    """
    if call.kind is CallKind.ONCE:
        return ONCE
    if call.kind is CallKind.BRANCH:
        return _MAYBE
    if call.kind is CallKind.ELEMENT:
        return _applied(call)
    if call.kind is CallKind.OPAQUE:
        return _UNKNOWN
    trip = trips[call.caller]
    more = ONCE if call.kind is CallKind.CONDITION else NEVER
    if trip.count is None:
        return _UNKNOWN + more
    low = trip.count if trip.basis is Basis.EXACT else 0
    return Times(low, trip.count, trip.count) + more


def _applied(call: Call) -> Times:
    try:
        # A select-and-scatter names two computations, the selection first.
        count = applications(call.caller, call.attribute)
    except (IndexError, ValueError, Unavailable):
        count = None
    return _UNKNOWN if count is None else Times(count, count, count)
