"""How often each loop's body runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.passes.applications import scan_length
from hloscope.passes.call_graph import CallGraph, CallKind
from hloscope.passes.induction import NotInducedError, induce_trip_count
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = ["TripCount", "TripCounts", "trip_counts"]


@dataclass(frozen=True, slots=True)
class TripCount:
    """Iterations of one ``while`` or ``scan`` each time that it is reached.

    Attributes:
        count: The number; an upper bound when ``basis`` is bounded, ``None``
            when it is unknown.
        basis: How it is known.
        source: ``known_trip_count`` (XLA's own record), ``induction variable``
            (read from the loop), ``scanned dimension``, or empty.
        reason: Why it is unknown, as part of a sentence.
    """

    count: int | None
    basis: Basis
    source: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TripCounts(Mapping[Instruction, TripCount]):
    """Trip count of every ``while`` and ``scan`` that can run."""

    by_loop: Mapping[Instruction, TripCount]

    def __getitem__(self, loop: Instruction) -> TripCount:
        return self.by_loop[loop]

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.by_loop)

    def __len__(self) -> int:
        return len(self.by_loop)


@analysis
def trip_counts(graph: CallGraph) -> TripCounts:
    """Read XLA's record of each loop, else induce the count from its condition.

    A ``scan`` runs along a dimension, whose size is its count.
    """
    return TripCounts(
        {
            call.caller: _trip_count(call.caller, graph)
            for computation in graph.order
            for call in graph.calls[computation]
            if call.kind in (CallKind.BODY, CallKind.CONDITION)
        }
    )


def _trip_count(loop: Instruction, graph: CallGraph) -> TripCount:
    if loop.opcode == "scan":
        try:
            return TripCount(scan_length(loop), Basis.EXACT, "scanned dimension")
        except (IndexError, ValueError) as error:
            return TripCount(None, Basis.UNKNOWN, reason=str(error))
    known = _recorded(loop)
    if known is not None:
        return TripCount(known, Basis.EXACT, "known_trip_count")
    try:
        count, exact = induce_trip_count(loop, graph.callers)
    except NotInducedError as error:
        return TripCount(None, Basis.UNKNOWN, reason=str(error))
    return TripCount(count, Basis.EXACT if exact else Basis.BOUNDED, "induction variable")


def _recorded(loop: Instruction) -> int | None:
    record = loop.backend_config.get("known_trip_count")
    text = str(record.get("n", "")) if isinstance(record, dict) else ""
    return int(text) if text.isdecimal() else None
