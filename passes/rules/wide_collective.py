"""HS404."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.collective_dtypes import WideCollective
from hloscope.passes.collectives import Collectives
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.wide_gathers import WideExchanges
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["wide_collective"]

_RING = "ring algorithm, loops of unknown length run once"


@rule("HS404", "wide-collective", Category.DTYPE_CHURN)
def wide_collective(
    exchanges: WideExchanges, collectives: Collectives, limits: Limits
) -> Iterator[Finding]:
    """Finds exchanges that carry float32 where a narrower type arrives or was sent.

    What it does:
        Takes every exchange between devices that only moves elements
        (all-gather, all-to-all, permute, broadcast) in float32 or float64. It
        is listed where every use of its result converts it to a narrower type
        or multiplies it in one, also after a reshape or a lookup, and where its
        operand was a narrow value that was widened just in front of it. From
        ``wire_share`` (1%) of the bytes that a device sends on, by source line.
        Parameters that are gathered and then narrowed are HS709.

    Why it costs:
        Rounding and moving may change places: the values are the same and half
        the bytes cross the wire.

    Example:
            y = jax.nn.softmax(scores.astype(jnp.float32))
            y = jax.lax.all_gather(y, "model", axis=1, tiled=True)   # float32
            out = y.astype(jnp.bfloat16) @ v

    Use instead:
        Convert the part, then exchange it:

            y = jax.nn.softmax(scores.astype(jnp.float32)).astype(jnp.bfloat16)
            out = jax.lax.all_gather(y, "model", axis=1, tiled=True) @ v

        Under jit with shardings, say that the converted array is still sharded,
        or the partitioner may gather first:

            y = jax.lax.with_sharding_constraint(y.astype(jnp.bfloat16), sharded)
    """
    sent = sum((row.wire_bytes or 0) * row.times.nominal for row in collectives.rows)
    lines: dict[object, list[WideCollective]] = {}
    for row in exchanges.others:
        if row.saved_bytes:
            instruction = row.collective.instruction
            location = instruction.location
            place = (location.file, location.line) if location else instruction.op_name
            lines.setdefault((place, row.wide, row.narrow, row.collective.kind), []).append(row)
    for rows in lines.values():
        saved = sum(row.saved_bytes or 0 for row in rows)
        if sent and saved >= limits.wire_share * sent:
            yield _finding(rows, saved, saved / sent, limits)


def _finding(rows: Sequence[WideCollective], saved: int, share: float, limits: Limits) -> Finding:
    first = max(rows, key=lambda row: row.saved_bytes or 0)
    kind = first.collective.kind.value
    many = f"{len(rows)} {kind}s carry" if len(rows) > 1 else f"an {kind} carries"
    if len(rows) == 1 and kind[0] not in "aeiou":
        many = f"a {kind} carries"
    cost = Quantity("bytes on the wire saved", saved, Unit.BYTES, Basis.MODELLED, _RING)
    carried = sum((row.collective.wire_bytes or 0) * row.runs for row in rows)
    notes = [f"largest: {first.collective.instruction.name}, {first.how}"]
    for convert in first.converts[:1]:
        location = convert.location
        if location is not None:
            notes.append(f"narrowed at {location.file}:{location.line}")
    return Finding(
        code="HS404",
        name="wide-collective",
        category=Category.DTYPE_CHURN,
        severity=limits.severity(share),
        message=f"{many} {first.wide} where {first.narrow} would do",
        site=instruction_site(first.collective.instruction),
        evidence=(
            cost,
            Quantity("share of bytes sent", share, Unit.SHARE, Basis.MODELLED, _RING),
            Quantity("bytes sent by these", carried, Unit.BYTES, Basis.MODELLED, _RING),
        ),
        cost=cost,
        fix=f"Convert to {first.narrow} before the exchange instead of after it."
        if first.converts or "round" in first.how
        else f"Send the {first.narrow} value and widen it after the exchange.",
        notes=tuple(notes),
    )
