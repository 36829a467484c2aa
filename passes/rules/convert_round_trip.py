"""HS402."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.round_trips import RoundTrip, RoundTrips
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["convert_round_trip"]

_ONCE = "each branch taken, loops of unknown length run once"


@rule("HS402", "convert-round-trip", Category.DTYPE_CHURN)
def convert_round_trip(trips: RoundTrips, traffic: Traffic, limits: Limits) -> Iterator[Finding]:
    """Finds values that are converted to another type and straight back, at a cost in memory.

    What it does:
        Follows every conversion's operand back through fusions, copies,
        reshapes, transposes, slices and loops. Where it comes from
        the opposite conversion nothing was computed in between. What the pair
        moves through memory beyond what the value itself would have is summed
        by source line, and listed from ``traffic_share`` (1%) of the program's
        traffic on. Pairs within a launch that also computes cost nothing and are
        left to ``hloscope dtypes``, as are those that XLA made itself, and values that
        devices exchange in between, where a narrow type has its use. Compilers
        for GPUs and TPUs drop most pairs through a narrower type by themselves
        (``xla_allow_excess_precision``); what they drop is not found.

    Why it costs:
        A conversion by itself reads and writes the whole array; one at the end
        of a fusion makes the next one read a type that it did not need. The way
        through a narrow type also rounds the value for good.

    Example:
            h = norm(x).astype(jnp.bfloat16)        # the norm computes in float32
            h = rearrange(h)
            return router(h.astype(jnp.float32))    # rounded, written, widened

    Use instead:
        Convert once, where the value is used in the narrow type:

            h = rearrange(norm(x))
            return router(h)                        # stays float32
    """
    total = traffic.total()
    lines: dict[object, list[RoundTrip]] = {}
    for trip in trips.rows:
        if trip.asked_for and trip.nominal_bytes and not trip.exchanged:
            location = trip.back.instruction.location
            place = (location.file, location.line) if location else trip.back.instruction
            lines.setdefault((place, trip.there.source, trip.there.result), []).append(trip)
    for rows in lines.values():
        moved = sum(trip.nominal_bytes for trip in rows)
        if total and moved >= limits.traffic_share * total:
            yield _finding(rows, moved, moved / total, limits)


def _finding(rows: Sequence[RoundTrip], moved: int, share: float, limits: Limits) -> Finding:
    first = max(rows, key=lambda trip: trip.nominal_bytes)
    kinds = f"{first.there.source} to {first.there.result} and back"
    many = f"{len(rows)} values go" if len(rows) > 1 else "a value goes"
    known = all(trip.back.times.exact is not None for trip in rows)
    basis, model = (Basis.EXACT, None) if known else (Basis.MODELLED, _ONCE)
    cost = Quantity("bytes for nothing", moved, Unit.BYTES, basis, model)
    there = first.there.instruction.location
    notes = [f"largest: {first.back.instruction.shape}, {first.back.instruction.name}"]
    if there is not None:
        notes.append(f"converted there at {there.file}:{there.line}")
    if first.loses:
        notes.append("the value is rounded on the way: without the pair it keeps its digits")
    if first.shared:
        notes.append(f"the {first.there.result} value has other uses; only the way back is counted")
    return Finding(
        code="HS402",
        name="convert-round-trip",
        category=Category.DTYPE_CHURN,
        severity=limits.severity(share),
        message=f"{many} from {kinds} with nothing computed in between",
        site=instruction_site(first.back.instruction),
        evidence=(
            cost,
            Quantity("share of memory traffic", share, Unit.SHARE, basis, model),
            Quantity("round trips", len(rows)),
        ),
        cost=cost,
        fix=f"Keep the value in {first.there.source} between the two lines, or convert it only "
        "for the use that needs the other type.",
        notes=tuple(notes),
    )
