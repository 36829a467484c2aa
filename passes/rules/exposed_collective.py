"""HS708."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope import units
from hloscope.passes.exchanges import Exchange, Exchanges
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.overlap import SCHEDULE, ExchangeTime, Overlap
from hloscope.passes.roofline import Roofline
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["exposed_collective"]


@rule("HS708", "exposed-collective", Category.SHARDING)
def exposed_collective(
    exchanges: Exchanges, overlap: Overlap, roofline: Roofline, limits: Limits
) -> Iterator[Finding]:
    """Finds exchanges whose time no other work hides.

    What it does:
        Walks the schedule: what runs between the start and the end of an
        exchange hides it as long as it lasts; an exchange that is waited for at
        once is exposed as a whole. Work takes its time on the roofline and an
        exchange its bytes over the chip's links. It is listed by source line
        from ``exposed_share`` (2%) of the step's own floor on.

    Why it costs:
        While nothing but an exchange runs, the device waits for its neighbours.

    Example:
            grads = jax.grad(loss)(params, batch)          # all products first
            grads = jax.lax.pmean(grads, "data")           # then one large all-reduce

    Use instead:
        Let XLA start each exchange as soon as its operand is there and hide it
        behind the products that are left: leave the exchange to the sharding of
        the parameters, scan over layers so that each has its own, and on GPUs
        compile with ``xla_gpu_enable_latency_hiding_scheduler=True``. What is
        still exposed is too large for the work beside it: send it in bfloat16,
        or put fewer devices on that axis.
    """
    floor = roofline.step.floor.nominal
    lines: dict[object, list[tuple[Exchange, ExchangeTime]]] = {}
    for exchange, time in zip(exchanges.rows, overlap.rows, strict=True):
        if time.exposed:
            location = exchange.named.location
            place = (location.file, location.line) if location else exchange.named.op_name
            lines.setdefault((place, exchange.collective.kind), []).append((exchange, time))
    for rows in lines.values():
        exposed = sum(map(_exposed, rows))
        if floor and exposed >= limits.exposed_share * floor:
            yield _finding(rows, exposed, exposed / floor, limits)


def _finding(
    rows: Sequence[tuple[Exchange, ExchangeTime]], exposed: float, share: float, limits: Limits
) -> Finding:
    first, _ = max(rows, key=_exposed)
    kind = first.collective.kind.value
    cost = Quantity("time exposed", exposed, Unit.SECONDS, Basis.MODELLED, SCHEDULE)
    over = f" over {', '.join(first.axes)}" if first.axes else ""
    at_once = sum(time.end is None for _, time in rows)
    whole = sum((time.seconds or 0.0) * _runs(row) for row, time in rows)
    notes = [f"of {units.seconds(whole)} on the links"]
    if at_once:
        notes.append(f"{at_once} of {len(rows)} waited for at once: nothing is scheduled beside")
    return Finding(
        code="HS708",
        name="exposed-collective",
        category=Category.SHARDING,
        severity=limits.severity(share),
        message=f"{kind}{over} is not hidden behind other work",
        site=instruction_site(first.collective.instruction, first.about, first.named),
        evidence=(
            cost,
            Quantity("share of the step's floor", share, Unit.SHARE, Basis.MODELLED, SCHEDULE),
            Quantity("exchanges", len(rows)),
        ),
        cost=cost,
        fix="Give it work to hide behind, or send less: a narrower type, fewer devices on the axis."
        if not at_once
        else "Let the compiler overlap it: leave it to the shardings, and compile with the "
        "latency-hiding scheduler.",
        notes=tuple(notes),
    )


def _runs(row: Exchange) -> int:
    return row.collective.times.nominal


def _exposed(pair: tuple[Exchange, ExchangeTime]) -> float:
    return (pair[1].exposed or 0.0) * _runs(pair[0])
