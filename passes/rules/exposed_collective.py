"""HS708."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloscope import units
from hloscope.errors import Unavailable
from hloscope.passes.exchanges import Exchange, Exchanges
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.overlap import SCHEDULE, ExchangeTime, Overlap
from hloscope.passes.roofline import Roofline
from hloscope.passes.traced_exchanges import TracedExchange, TracedExchanges
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["exposed_collective"]

_PER_STEP = "a measured run times the runs of a step, loops of unknown length once"
_PS = 1e-12
_LESS = "Give it work to hide behind, or send less: a narrower type, fewer devices on the axis."
_OVERLAP = (
    "Let the compiler overlap it: leave it to the shardings, and compile with the "
    "latency-hiding scheduler."
)
_BALANCE = (
    "Give all devices the same work: most of the time they wait for the last of them, not for data."
)


@dataclass(frozen=True, slots=True)
class _Row:
    """An exchange with its time by the model, and as a trace has it."""

    exchange: Exchange
    time: ExchangeTime | None
    traced: TracedExchange | None

    @property
    def runs(self) -> int:
        return self.exchange.collective.times.nominal

    @property
    def modelled(self) -> float:
        """Seconds of a step in which nothing is scheduled that hides it."""
        return ((self.time.exposed if self.time is not None else None) or 0.0) * self.runs

    @property
    def measured(self) -> float:
        """Seconds of a step in which nothing was computed beside it."""
        return self.traced.exposed_each() * _PS * self.runs if self.traced is not None else 0.0


@rule("HS708", "exposed-collective", Category.SHARDING)
def exposed_collective(
    exchanges: Exchanges,
    overlap: Overlap | None,
    roofline: Roofline | None,
    traced: TracedExchanges | None,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds exchanges whose time no other work hides.

    What it does:
        Walks the schedule: what runs between the start and the end of an
        exchange hides it as long as it lasts; an exchange that is waited for at
        once is exposed as a whole. Work takes its time on the roofline and an
        exchange its bytes over the chip's links. It is listed by source line
        from ``exposed_share`` (2%) of the step's own floor on. With a trace of
        the same program the time is measured instead: that in which an exchange
        ran, or was in flight, and the device computed nothing, from that share of
        the trace's window on, and whether devices wait for the last of them
        rather than for data. What the trace does not have is still modelled.

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
    known = traced is not None and not traced.note
    if (overlap is None or roofline is None) and not known:
        raise Unavailable(traced.note if traced is not None else "no chip given")
    times = overlap.rows if overlap is not None else (None,) * len(exchanges.rows)
    measured = traced.rows if traced is not None else (None,) * len(exchanges.rows)
    lines: dict[object, list[_Row]] = {}
    for row in map(_Row, exchanges.rows, times, measured):
        location = row.exchange.named.location
        place = (location.file, location.line) if location else row.exchange.named.op_name
        lines.setdefault((place, row.exchange.collective.kind), []).append(row)
    for rows in lines.values():
        if traced is not None and any(row.traced is not None for row in rows):
            found = _measured(rows, traced, limits)
        else:
            floor = roofline.step.floor.nominal if roofline is not None else 0.0
            found = _modelled(rows, floor, limits, _why_not(traced))
        if found is not None:
            yield found


def _why_not(traced: TracedExchanges | None) -> str:
    if traced is None:
        return ""
    return f"not measured: {traced.note or 'the trace does not have it'}"


def _modelled(rows: Sequence[_Row], floor: float, limits: Limits, why: str) -> Finding | None:
    rows = [row for row in rows if row.modelled]
    exposed = sum(row.modelled for row in rows)
    if not rows or not floor or exposed < limits.exposed_share * floor:
        return None
    cost = Quantity("time exposed", exposed, Unit.SECONDS, Basis.MODELLED, SCHEDULE)
    share = exposed / floor
    whole = sum((row.time.seconds or 0.0) * row.runs for row in rows if row.time is not None)
    at_once = sum(row.time is not None and row.time.end is None for row in rows)
    notes = [f"of {units.seconds(whole)} on the links"]
    if at_once:
        notes.append(f"{at_once} of {len(rows)} waited for at once: nothing is scheduled beside")
    if why:
        notes.append(why)
    evidence = Quantity("share of the step's floor", share, Unit.SHARE, Basis.MODELLED, SCHEDULE)
    first = max(rows, key=lambda row: row.modelled)
    fix = _OVERLAP if at_once else _LESS
    return _finding(first, len(rows), cost, evidence, notes, limits, fix)


def _measured(rows: Sequence[_Row], traced: TracedExchanges, limits: Limits) -> Finding | None:
    having = [(row, row.traced) for row in rows if row.traced is not None]
    exposed = sum(found.exposed for _, found in having)
    share = exposed / traced.length if traced.length else 0.0
    if not exposed or share < limits.exposed_share:
        return None
    value = sum(row.measured for row, _ in having)
    cost = Quantity("time exposed", value, Unit.SECONDS)
    if any(row.exchange.collective.times.exact is None for row, _ in having):
        cost = Quantity("time exposed", value, Unit.SECONDS, Basis.MODELLED, _PER_STEP)
    runs = sum(found.runs for _, found in having)
    whole = sum(found.time for _, found in having)
    notes = [
        f"measured: {units.seconds(exposed * _PS)} of {units.seconds(whole * _PS)} in "
        f"{units.count(runs)} runs on all devices"
    ]
    at_once = sum(found.time == found.exposed for _, found in having)
    if at_once:
        notes.append(f"{at_once} of {len(rows)} ran without anything computed beside")
    if len(having) < len(rows):
        notes.append(f"{len(rows) - len(having)} of {len(rows)} are not in the trace")
    late = max((found for _, found in having), key=lambda found: found.waited * found.share)
    waited = sum(found.waited for _, found in having)
    unbalanced = waited > whole / 2
    if late.waited and unbalanced:
        notes.append(
            f"devices waited {units.seconds(waited * _PS)} for the last of them to come, most "
            f"of all for {late.straggler}"
        )
    evidence = Quantity("share of the trace's window", share, Unit.SHARE)
    first = max((row for row, _ in having), key=lambda row: row.measured)
    fix = _BALANCE if unbalanced else _OVERLAP if at_once else _LESS
    return _finding(first, len(rows), cost, evidence, notes, limits, fix)


def _finding(
    row: _Row,
    number: int,
    cost: Quantity,
    share: Quantity,
    notes: Sequence[str],
    limits: Limits,
    fix: str,
) -> Finding:
    first = row.exchange
    kind = first.collective.kind.value
    over = f" over {', '.join(first.axes)}" if first.axes else ""
    return Finding(
        code="HS708",
        name="exposed-collective",
        category=Category.SHARDING,
        severity=limits.severity(share.value or 0.0),
        message=f"{kind}{over} is not hidden behind other work",
        site=instruction_site(first.collective.instruction, first.about, first.named),
        evidence=(cost, share, Quantity("exchanges", number)),
        cost=cost,
        fix=fix,
        notes=tuple(notes),
    )
