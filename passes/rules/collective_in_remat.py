"""HS707."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.collectives import CollectiveKind
from hloscope.passes.exchanges import Exchange, Exchanges
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.step_parts import StepPart
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["collective_in_remat"]

_RING = "ring algorithm, loops of unknown length run once"


@rule("HS707", "collective-in-remat", Category.SHARDING)
def collective_in_remat(exchanges: Exchanges, limits: Limits) -> Iterator[Finding]:
    """Finds exchanges between devices that a checkpoint runs a second time.

    What it does:
        Takes every exchange that ``jax.checkpoint`` runs again in the backward
        pass, by source line, from ``wire_share`` (1%) of the bytes that a device
        sends on. Gathers of arguments are left out: to keep gathered weights would
        undo their sharding.

    Why it costs:
        A checkpoint trades time for memory, and arithmetic is cheap to repeat.
        An exchange is not: its bytes cross the links twice, and in the backward
        pass there is often little left to hide it behind.

    Example:
            @jax.checkpoint
            def layer(x, w):
                x = jax.lax.all_gather(x, "tensor", axis=1, tiled=True)
                return jnp.tanh(x @ w)

    Use instead:
        Name what the exchange gives and keep it:

            def layer(x, w):
                x = jax.lax.all_gather(x, "tensor", axis=1, tiled=True)
                x = jax.ad_checkpoint.checkpoint_name(x, "gathered")
                return jnp.tanh(x @ w)

            keep = jax.checkpoint_policies.save_only_these_names("gathered")
            layer = jax.checkpoint(layer, policy=keep)
    """
    sent = sum(_sent(row) for row in exchanges.rows)
    lines: dict[object, list[Exchange]] = {}
    for row in exchanges.rows:
        if row.part is StepPart.REPLAYED and not _is_of_argument(row):
            location = row.named.location
            place = (location.file, location.line) if location else row.named.op_name
            lines.setdefault((place, row.collective.kind), []).append(row)
    for rows in lines.values():
        again = sum(map(_sent, rows))
        if again and again >= limits.wire_share * sent:
            yield _finding(rows, again, again / sent, limits)


def _finding(rows: Sequence[Exchange], again: int, share: float, limits: Limits) -> Finding:
    first = max(rows, key=_sent)
    kind = first.collective.kind.value
    cost = Quantity("bytes sent again", again, Unit.BYTES, Basis.MODELLED, _RING)
    runs = sum(row.collective.times.nominal for row in rows)
    over = f" over {', '.join(first.axes)}" if first.axes else ""
    return Finding(
        code="HS707",
        name="collective-in-remat",
        category=Category.SHARDING,
        severity=limits.severity(share),
        message=f"{kind}{over} runs again in the backward pass for a checkpoint",
        site=instruction_site(first.collective.instruction, first.leaf, first.named),
        evidence=(
            cost,
            Quantity("share of bytes sent", share, Unit.SHARE, Basis.MODELLED, _RING),
            Quantity("runs", runs),
        ),
        cost=cost,
        fix="Keep what the exchange gives: checkpoint_name and save_only_these_names.",
    )


def _sent(row: Exchange) -> int:
    return (row.collective.wire_bytes or 0) * row.collective.times.nominal


def _is_of_argument(row: Exchange) -> bool:
    return row.collective.kind is CollectiveKind.ALL_GATHER and row.leaf is not None
