"""HS709."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope import units
from hloscope.passes.collectives import Collectives
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.wide_gathers import WideExchanges, WideGather
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["gather_then_cast"]

_RING = "ring algorithm, loops of unknown length run once"
_SHOWN_LEAVES = 6


@rule("HS709", "gather-then-cast", Category.SHARDING)
def gather_then_cast(
    exchanges: WideExchanges, collectives: Collectives, limits: Limits
) -> Iterator[Finding]:
    """Finds sharded parameters that are gathered in float32 and only then made narrower.

    What it does:
        Takes the all-gathers of an argument that is no batch, in float32 or
        float64, of which every use converts the result to a narrower type or
        multiplies it in one. From ``wire_share`` (1%) of the bytes that a device
        sends on, by source line. Exchanges of computed values are
        HS404.

    Why it costs:
        Rounding and gathering may change places: each device can round its own
        shard. The values are the same, half the bytes cross the links, and the
        gathered copy takes half the memory. Gathering parameters is most of what
        a fully sharded step sends. XLA swaps the two itself in many programs for
        GPUs and TPUs, but not where something stands between them.

    Example:
            kernel = jax.lax.all_gather(shard, "fsdp", tiled=True)   # float32
            y = x @ kernel.astype(jnp.bfloat16)

    Use instead:
        Convert the shard, then gather it:

            kernel = jax.lax.all_gather(shard.astype(jnp.bfloat16), "fsdp", tiled=True)
            y = x @ kernel

        Under jit with shardings, say that the converted array is still sharded,
        or the partitioner may gather first:

            table = jax.lax.with_sharding_constraint(table.astype(jnp.bfloat16), sharded)
            h = jax.lax.with_sharding_constraint(table, replicated)[tokens]
    """
    sent = sum((row.wire_bytes or 0) * row.times.nominal for row in collectives.rows)
    lines: dict[object, list[WideGather]] = {}
    for row in exchanges.gathers:
        if row.wide.saved_bytes:
            location = row.exchange.named.location
            place = (location.file, location.line) if location else row.exchange.named.op_name
            lines.setdefault((place, row.wide.wide, row.wide.narrow), []).append(row)
    for rows in lines.values():
        saved = sum(row.wide.saved_bytes or 0 for row in rows)
        if sent and saved >= limits.wire_share * sent:
            yield _finding(rows, saved, saved / sent, limits)


def _finding(rows: Sequence[WideGather], saved: int, share: float, limits: Limits) -> Finding:
    first = max(rows, key=lambda row: row.wide.saved_bytes or 0)
    wide, narrow = first.wide.wide, first.wide.narrow
    leaves = list(dict.fromkeys(leaf.path for row in rows for leaf in row.leaves))
    what = leaves[0] if len(leaves) == 1 else f"{len(leaves)} parameters"
    verb = "is" if len(leaves) == 1 else "are"
    cost = Quantity("bytes on the wire saved", saved, Unit.BYTES, Basis.MODELLED, _RING)
    carried = sum((row.wide.collective.wire_bytes or 0) * row.wide.runs for row in rows)
    return Finding(
        code="HS709",
        name="gather-then-cast",
        category=Category.SHARDING,
        severity=limits.severity(share),
        message=f"{what} {verb} gathered in {wide} where {narrow} would do",
        site=instruction_site(
            first.exchange.collective.instruction, leaves[0], first.exchange.named
        ),
        evidence=(
            cost,
            Quantity("share of bytes sent", share, Unit.SHARE, Basis.MODELLED, _RING),
            Quantity("bytes sent by these", carried, Unit.BYTES, Basis.MODELLED, _RING),
            Quantity("gathers", len(rows)),
        ),
        cost=cost,
        fix=f"Convert the shard to {narrow} and gather that.",
        notes=tuple(_notes(rows, first, leaves)),
    )


def _notes(rows: Sequence[WideGather], first: WideGather, leaves: Sequence[str]) -> Iterator[str]:
    yield f"largest: {first.exchange.collective.instruction.name}, {first.wide.how}"
    for convert in first.wide.converts[:1]:
        location = convert.location
        if location is not None:
            yield f"narrowed at {location.file}:{location.line}"
    if len(leaves) > 1:
        saved: dict[str, int] = {}
        for row in rows:
            # Of several in one exchange it is not told apart.
            name = row.leaves[0].path if len(row.leaves) == 1 else f"{len(row.leaves)} together"
            saved[name] = saved.get(name, 0) + (row.wide.saved_bytes or 0)
        order = sorted(saved.items(), key=lambda item: -item[1])
        for path, size in order[:_SHOWN_LEAVES]:
            yield f"{path}: {units.byte_size(size)} saved"
        if len(order) > _SHOWN_LEAVES:
            yield f"and {len(order) - _SHOWN_LEAVES} more"
