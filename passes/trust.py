"""How much of the program the other passes could account for."""

from __future__ import annotations

from hloscope.ir import Module
from hloscope.passes.constants import Constants
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.traced_match import TracedMatch
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis, Trust

__all__ = ["judge_trust"]


@analysis
def judge_trust(
    module: Module,
    trips: TripCounts,
    ledger: FlopLedger,
    constants: Constants,
    traced: TracedMatch | None,
) -> Trust:
    """Count what was met and what was understood, and name the rest."""
    notes = [
        f"custom call {group.target or 'without a target'} (x{group.calls}): {group.reason}"
        for group in ledger.unknown_calls
    ]
    notes += [
        f"loop {loop.name}: {trip.reason}"
        for loop, trip in trips.items()
        if trip.basis is Basis.UNKNOWN
    ]
    notes += [
        f"loop {loop.name}: at most {trip.count} iterations"
        for loop, trip in trips.items()
        if trip.basis is Basis.BOUNDED
    ]
    uncounted = [row for row in ledger.rows if row.count.flops is None]
    if uncounted:
        first = uncounted[0]
        notes.append(
            f"{len(uncounted)} products not counted, first {first.instruction.name}: "
            f"{first.count.note}"
        )
    unread = sum(constant.kind == "unknown" for constant in constants.constants)
    if unread:
        notes.append(f"{unread} large constants of unknown contents: {constants.note}")
    mismatch = traced.mismatch(module) if traced is not None else ""
    if mismatch:
        notes.append(mismatch)
    return Trust(
        instructions=module.num_instructions,
        custom_calls=ledger.custom_calls,
        custom_calls_understood=ledger.custom_calls_understood,
        loops=len(trips),
        loops_understood=sum(trip.basis is Basis.EXACT for trip in trips.values()),
        notes=tuple(notes),
        traced=traced.instruction_share if traced is not None else None,
    )
