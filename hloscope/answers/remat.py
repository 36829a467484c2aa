"""What a step computes again, what that spares, and whether the compiler kept it so."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope import units
from hloscope.answers.host_offload import (
    offload_notes,
    offload_rows,
    offload_said,
    offload_table,
)
from hloscope.answers.remat_names import name_tables, unmatched_names
from hloscope.answers.remat_savings import Savings
from hloscope.chips import Chip
from hloscope.passes.collectives import RING
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.host_offload import HostOffload
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import LIVE_RANGES, MemoryUse
from hloscope.passes.remat import Remat, RematRegion
from hloscope.passes.remat_verdict import BY_LINE, BY_NAMES, LITTLE, RematOutcome, RematVerdict
from hloscope.passes.residuals import Residuals
from hloscope.pipeline.audit import AuditSubject, plural, trust_of
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.session import Session

__all__ = ["SHOWN", "report_remat"]

SHOWN = 12
"""Regions that are listed unless asked otherwise."""


_SAID = {
    RematOutcome.NONE: "Nothing is computed again: no checkpoint in the step.",
    RematOutcome.SURVIVED: "Rematerialization survived the compiler",
    RematOutcome.PARTLY_UNDONE: "Rematerialization is partly undone",
    RematOutcome.UNDONE: "Rematerialization is undone: the compiler merged it with the first run",
    RematOutcome.KEPT_ALL: "No products are computed again",
    RematOutcome.UNNAMED: "What runs again is not known: the module has no op_names.",
    RematOutcome.UNKNOWN: "Rematerialization is in the optimized HLO",
}


def report_remat(
    session: Session,
    subject: AuditSubject,
    *,
    top: int = SHOWN,
    without: tuple[Session, str] | None = None,
) -> Report:
    """Say what is computed again, region by region, what it spares and what it costs.

    Args:
        session: Gives the analyses.
        subject: Gives the report its head.
        top: How many regions are listed at most; 0 for all.
        without: The same step without its policy, and the words for it.

    Raises:
        Unavailable: ``without`` is given, and a module is not scheduled.
    """
    remat = session.get(Remat)
    verdict = session.get(RematVerdict)
    trust, missing = trust_of(session)
    tables = [_whole(session, remat, verdict)]
    if remat.regions:
        tables.append(_regions(session.get(FlopLedger), remat, top))
    tables += name_tables(session, top)
    offload = session.get(HostOffload)
    offloaded = offload_table(offload)
    if offloaded is not None:
        tables.append(offloaded)
    said = [unmatched_names(session), _summary(verdict, remat, without is not None)]
    said.append(offload_said(offload))
    if without is not None:
        savings = Savings(without, session)
        tables[1:1] = savings.tables(top)
        said.append(savings.said())
    notes = (*_notes(remat, verdict, missing), *offload_notes(offload, session.find(Chip)))
    return Report(
        command="remat",
        subject=subject.name,
        header=subject.header(),
        tables=tuple(tables),
        trust=trust,
        summary=" ".join(text for text in said if text),
        notes=notes,
    )


def _summary(verdict: RematVerdict, remat: Remat, measured: bool) -> str:
    text = _SAID[verdict.outcome]
    if verdict.outcome is RematOutcome.NONE and remat.clones:
        text = (
            f"No checkpoint in the step, but XLA repeats {plural(len(remat.clones), 'instruction')}"
        )
        return f"{text} of its own: {units.share(verdict.share)} of the product FLOPs."
    if verdict.outcome in (RematOutcome.NONE, RematOutcome.UNNAMED):
        return text
    if verdict.share:
        text += f": {units.share(verdict.share)} of the step's product FLOPs run again"
    elif verdict.outcome is RematOutcome.KEPT_ALL and remat.regions:
        text += ", elementwise work is"
    if verdict.outcome is not RematOutcome.UNDONE and remat.rebuilt_bytes:
        text += f", {units.byte_size(remat.rebuilt_bytes)} need not be kept"
    text += "."
    if verdict.useless and not measured:
        text += f" It spares under {units.share(LITTLE)} of the peak: it is not worth its time."
    if verdict.costly:
        text += f" It repeats {plural(verdict.replayed_exchanges, 'exchange')} between devices."
    return text


def _whole(session: Session, remat: Remat, verdict: RematVerdict) -> Table:
    """One row for each figure of the whole step, on one device."""
    ledger = session.get(FlopLedger)
    again = Quantity("recomputed", verdict.again_flops, Unit.FLOPS, Basis.MODELLED, verdict.model)
    of_all = f"{units.share(verdict.share)} of {units.flops(ledger.total.nominal)}"
    if verdict.outcome is RematOutcome.UNNAMED:
        again = Quantity("recomputed", None, Unit.FLOPS, Basis.UNKNOWN)
        of_all = f"of {units.flops(ledger.total.nominal)}; op_names would tell"
    rows: list[tuple[str | Quantity, ...]] = [("recomputed", again, of_all)]
    if verdict.asked_flops is not None:
        asked = Quantity("asked for", verdict.asked_flops, Unit.FLOPS)
        rows.append(("asked for", asked, "by the checkpoints in the jaxpr"))
    if verdict.undone_flops:
        where = ", ".join(map(str, verdict.undone_at)) or "no source line"
        undone = Quantity("undone", verdict.undone_flops, Unit.FLOPS, Basis.MODELLED, BY_LINE)
        rows.append(("undone", undone, f"merged with the first run: {where}"))
    if remat.clones:
        clones = Quantity("XLA's own", remat.clone_flops, Unit.FLOPS, Basis.MODELLED, BY_NAMES)
        rows.append(
            (
                "XLA's own",
                clones,
                f"{plural(len(remat.clones), 'clone')} named .remat beside the original",
            )
        )
    if remat.rebuilt_bytes is not None and verdict.outcome is not RematOutcome.UNNAMED:
        rebuilt = Quantity("rebuilt", remat.rebuilt_bytes, Unit.BYTES, Basis.MODELLED, LIVE_RANGES)
        rows.append(("rebuilt", rebuilt, "values that would have to be kept otherwise"))
    residuals = session.find(Residuals)
    if residuals is not None:
        kept = Quantity("kept", residuals.on_device, Unit.BYTES, Basis.MODELLED, LIVE_RANGES)
        number = sum(r.buffer.space is not Space.HOST for r in residuals.residuals)
        rows.append(("kept", kept, f"{plural(number, 'array')} from the forward, on the device"))
    rows += offload_rows(session.get(HostOffload))
    use = session.find(MemoryUse)
    if use is not None:
        peak = Quantity("peak", use.peak, Unit.BYTES, use.basis, use.model)
        rows.append(("peak", peak, f"with {units.byte_size(use.resident)} resident"))
    if verdict.costly:
        sent = Quantity("sent again", verdict.replayed_bytes, Unit.BYTES, Basis.MODELLED, RING)
        rows.append(
            ("sent again", sent, f"{plural(verdict.replayed_exchanges, 'exchange')} run again")
        )
    columns = (Column(""), Column("how much"), Column("what it is"))
    return Table("step", "One device, one execution", columns, tuple(rows))


def _regions(ledger: FlopLedger, remat: Remat, top: int) -> Table:
    shown = remat.regions[:top] if top else remat.regions
    with_bytes = any(region.rebuilt_bytes is not None for region in shown)
    exchanging = any(region.exchanges for region in shown)
    total = ledger.total.nominal
    columns = [
        Column("checkpoint in", text=Text.PATH),
        Column("launches", Unit.COUNT, spare=True),
        Column("FLOPs again", Unit.FLOPS),
        Column("share", Unit.SHARE),
        *([Column("rebuilt", Unit.BYTES)] if with_bytes else []),
        *([Column("sent again", Unit.BYTES)] if exchanging else []),
        Column("library calls", spare=True),
    ]
    rows = []
    for region in shown:
        cells: list[str | Quantity] = [
            region.scope or "(no scope)",
            Quantity("launches", region.launches),
            Quantity("FLOPs again", region.flops, Unit.FLOPS, Basis.MODELLED, BY_NAMES),
            Quantity("share", region.flops / total if total else 0.0, Unit.SHARE),
        ]
        if with_bytes:
            cells.append(
                Quantity("rebuilt", region.rebuilt_bytes, Unit.BYTES, Basis.MODELLED, LIVE_RANGES)
            )
        cells += [*([_sent(region)] if exchanging else []), _calls(region)]
        rows.append(tuple(cells))
    left = remat.regions[len(shown) :]
    note = ""
    if left:
        rest = units.flops(sum(region.flops for region in left))
        note = f"and {len(left)} more, {rest}; --top 0 lists all"
    return Table("regions", "By checkpoint", tuple(columns), tuple(rows), note)


def _sent(region: RematRegion) -> Quantity:
    known = [exchange.collective for exchange in region.exchanges]
    if any(one.wire_bytes is None for one in known):
        return Quantity("sent again", None, Unit.BYTES, Basis.UNKNOWN)
    value = sum((one.wire_bytes or 0) * one.times.nominal for one in known)
    return Quantity("sent again", value, Unit.BYTES, Basis.MODELLED, RING)


def _calls(region: RematRegion) -> str:
    names = dict.fromkeys(call.custom_call_target or "unnamed" for call in region.custom_calls)
    return ", ".join(names) or "-"


def _notes(remat: Remat, verdict: RematVerdict, missing: str) -> Iterator[str]:
    if verdict.outcome is RematOutcome.UNKNOWN:
        yield (
            "whether all that was asked for survived is not known: a bare module comes without "
            "the jaxpr, and where XLA merged a second run with the first either's name is left"
        )
    if verdict.outcome is RematOutcome.KEPT_ALL and verdict.asked_flops is None:
        yield (
            "the step has checkpoints: either their policy keeps every product, or XLA merged "
            "the second runs with the first; a bare module does not tell which"
        )
    if verdict.undone_flops:
        yield "the figures by checkpoint go by names, which merged instructions may keep"
    if remat.rebuilt_bytes is None and remat.regions:
        yield "what it spares is not known: the module is not scheduled"
    elif remat.regions:
        yield (
            "rebuilt is what the backward pass reads of the values that are computed again, all "
            "layers together; how much of it would live at the peak depends on the schedule"
        )
    if missing:
        yield missing
