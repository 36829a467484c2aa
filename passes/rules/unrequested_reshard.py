"""HS706."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.collectives import Collectives
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.reshards import Reshard, Reshards
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["unrequested_reshard"]

_RING = "ring algorithm, loops of unknown length run once"
_FIXES = {
    "dot_general": "Shard both operands alike along what the product sums over, or neither of "
    "them there.",
    "reshape": "Keep sharded dimensions whole in the reshape, in front where they are merged, and "
    "choose sizes (a number of heads) that the axis divides.",
}
_FIX = (
    "Let what makes the value and what takes it agree on one sharding: change the one that the "
    "arguments or results have, or say it with with_sharding_constraint."
)
_FIX_WHOLE = (
    "Go there over a sharding in between, one mesh axis at a time: a second "
    "with_sharding_constraint before this one."
)
_NOTHING = {True: "nothing in the program", False: "no name in the dump"}


@rule("HS706", "unrequested-reshard", Category.SHARDING)
def unrequested_reshard(
    reshards: Reshards, collectives: Collectives, limits: Limits
) -> Iterator[Finding]:
    """Finds values whose sharding the compiler changes though nothing asks for it.

    What it does:
        Takes the all-gathers, all-to-alls and permutes that XLA's partitioner put
        in, by source line. Those do not count that gather a parameter for use,
        that the program makes itself (``shard_map``, ``all_gather``, ``ppermute``
        and the like), that give or send what a sharding constraint asks for, that
        turn a product's operand around the devices, or that only fetch a
        neighbour's edge. From ``wire_share`` (1%) of the bytes that a
        device sends and ``reshard_bytes`` (1 MiB) on. At least a warning where
        the partitioner makes a value whole on every device only to split it anew
        ("Involuntary full rematerialization"). Of a dump it is a note: most
        constraints leave no name in compiled code.

    Why it costs:
        The partitioner lays out every operation by the shardings around it. Where
        they do not fit together it moves the data in between, in each step, and a
        gathered value takes its whole size on every device. It says nothing of
        this, and the program looks as if nothing were sent.

    Example:
        Six heads over four devices. Each holds one and a half, so the reshape
        has to gather them:

            x = jax.device_put(x, NamedSharding(mesh, P("data", None, None)))
            w = jax.device_put(w, NamedSharding(mesh, P(None, "model")))   # model=4
            heads = (x @ w).reshape(batch, length, 6, 64)

    Use instead:
        A number of heads that the axis divides, or heads over another axis:

            heads = (x @ w).reshape(batch, length, 8, 64)

        Where the change of sharding is meant, say so next to it:

            y = jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P("data", None)))
    """
    sent = sum((row.wire_bytes or 0) * row.times.nominal for row in collectives.rows)
    lines: dict[object, list[Reshard]] = {}
    for row in reshards.rows:
        location = row.exchange.named.location
        place = (location.file, location.line) if location else row.exchange.named.op_name
        lines.setdefault((place, row.primitive, row.exchange.collective.kind), []).append(row)
    for rows in lines.values():
        size = sum(_sent(row) for row in rows)
        if sent and size >= max(limits.reshard_bytes, limits.wire_share * sent):
            yield _finding(rows, size, size / sent, limits, reshards.constraints_known)


def _finding(
    rows: Sequence[Reshard], size: int, share: float, limits: Limits, constraints_known: bool
) -> Finding:
    first = max(rows, key=_sent)
    exchange = first.exchange
    kind = exchange.collective.kind.value
    many = (
        f"{len(rows)} {kind}s" if len(rows) > 1 else f"an {kind}" if kind[0] == "a" else f"a {kind}"
    )
    over = f" over {', '.join(exchange.axes)}" if exchange.axes else ""
    cost = Quantity("bytes sent", size, Unit.BYTES, Basis.MODELLED, _RING)
    # A dump does not tell what a constraint asked for.
    severity = limits.severity(share) if constraints_known else Severity.NOTE
    whole = next((row for row in rows if row.whole), None)
    if whole is not None and severity is Severity.NOTE:
        severity = Severity.WARNING
    return Finding(
        code="HS706",
        name="unrequested-reshard",
        category=Category.SHARDING,
        severity=severity,
        message=f"{many}{over} at {first.primitive} that {_NOTHING[constraints_known]} asks for"
        if whole is None
        else f"{many}{over} at {first.primitive} to make a value whole and split it anew",
        site=instruction_site(exchange.collective.instruction, exchange.about, exchange.named),
        evidence=(
            cost,
            Quantity("share of bytes sent", share, Unit.SHARE, Basis.MODELLED, _RING),
            Quantity("runs", sum(row.exchange.collective.times.nominal for row in rows)),
        ),
        cost=cost,
        fix=_FIX_WHOLE if whole is not None else _FIXES.get(first.primitive, _FIX),
        notes=tuple(_notes(first, whole, constraints_known)),
    )


def _notes(first: Reshard, whole: Reshard | None, constraints_known: bool) -> Iterator[str]:
    yield f"largest: {first.before} becomes {first.after} on each device"
    if whole is not None and whole.warning is not None:
        warning = whole.warning
        yield (
            f"XLA warns of an involuntary full rematerialization of {warning.instruction} "
            f"{warning.shape}: from {warning.source} to {warning.target}"
        )
    elif whole is not None:
        yield "each device keeps a slice of what is gathered"
    if not constraints_known:
        yield "a sharding constraint may ask for it: most leave no name in compiled code"


def _sent(row: Reshard) -> int:
    collective = row.exchange.collective
    return (collective.wire_bytes or 0) * collective.times.nominal
