"""FLOPs of the optimized HLO beside XLA's own count, as a report."""

from __future__ import annotations

from hloscope import units
from hloscope.errors import Unavailable
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.ledger import FlopLedger, UnknownCalls
from hloscope.passes.flops.totals import FlopTotal
from hloscope.pipeline.audit import AuditSubject, plural, trust_of
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Unit
from hloscope.pipeline.inputs import XlaCost
from hloscope.pipeline.session import Session

__all__ = ["report_flops"]

_TITLES = {
    Kind.MATMUL: "matrix products",
    Kind.CONVOLUTION: "convolutions",
    Kind.ATTENTION: "fused attention",
    Kind.KERNEL: "custom kernels, as recorded",
}
_METHOD = (
    "hloscope counts products (a multiply-add is two), also inside library calls, and each as "
    "often as its loop runs; XLA counts elementwise work too, a loop's body once, and nothing "
    "inside library calls."
)


def report_flops(session: Session, subject: AuditSubject) -> Report:
    """Set hloscope's count of products beside XLA's cost analysis, with the ratio.

    Args:
        session: Gives the ledger, and XLA's figure where the subject has one.
        subject: Gives the report its head.

    Raises:
        AnalysisFailedError: The program could not be counted.
    """
    ledger = session.get(FlopLedger)
    ours = ledger.total.quantity("products")
    theirs, source = _xla(session)
    trust, missing = trust_of(session)
    notes = [_METHOD] + [f"XLA's figure: {source}"] * bool(source) + [missing] * bool(missing)
    ratio = _ratio(ours, theirs)
    tables = [_comparison(ours, theirs, ratio), _kinds(ledger)]
    if ledger.unknown_calls:
        tables.append(_unknown(ledger.unknown_calls))
    return Report(
        command="flops",
        subject=subject.name,
        header=subject.header(),
        tables=tuple(tables),
        trust=trust,
        summary=_summary(ledger, ours, theirs, ratio),
        notes=tuple(notes),
    )


def _xla(session: Session) -> tuple[Quantity, str]:
    """XLA's figure, and where it comes from or why there is none."""
    try:
        cost = session.get(XlaCost)
    except Unavailable as reason:
        return Quantity("XLA", None, Unit.FLOPS, Basis.UNKNOWN), reason.message
    # XLA writes a negative number for a count that it does not know.
    if cost.flops is None or cost.flops < 0:
        return Quantity("XLA", None, Unit.FLOPS, Basis.UNKNOWN), "it gives no number of FLOPs"
    return Quantity("XLA", cost.flops, Unit.FLOPS, Basis.MODELLED, "XLA"), cost.source


def _ratio(ours: Quantity, theirs: Quantity) -> Quantity:
    """Ours over theirs; as uncertain as ours."""
    if ours.value is None or not theirs.value:
        return Quantity("ratio", None, Unit.RATIO, Basis.UNKNOWN)
    return Quantity("ratio", ours.value / theirs.value, Unit.RATIO, ours.basis, ours.model)


def _comparison(ours: Quantity, theirs: Quantity, ratio: Quantity) -> Table:
    return Table(
        "comparison",
        "One execution of the program",
        (Column("count"), Column("FLOPs", Unit.FLOPS)),
        (
            ("hloscope: products", ours),
            ("XLA: cost_analysis()", theirs),
            ("ratio", ratio),
        ),
    )


def _kinds(ledger: FlopLedger) -> Table:
    instructions = dict.fromkeys(ledger.by_kind, 0)
    for row in ledger.rows:
        instructions[row.count.kind] = instructions.get(row.count.kind, 0) + 1
    rows = [
        (
            _TITLES[kind],
            Quantity("instructions", number),
            _total(ledger, kind),
            _share(ledger, kind),
        )
        for kind, number in instructions.items()
    ]
    return Table(
        "kinds",
        "By kind",
        (
            Column("kind"),
            Column("instructions", Unit.COUNT),
            Column("FLOPs", Unit.FLOPS),
            Column("share", Unit.SHARE),
        ),
        tuple(rows),
        "" if rows else "The program computes no products that hloscope knows.",
    )


def _total(ledger: FlopLedger, kind: Kind) -> Quantity:
    total = ledger.by_kind.get(kind, FlopTotal(0, 0, 0))
    return total.quantity(kind.value)


def _share(ledger: FlopLedger, kind: Kind) -> Quantity:
    """Part of the whole; unknown where the whole or the part is not one number."""
    part, whole = _total(ledger, kind), ledger.total.quantity("products")
    uncertain = Basis.BOUNDED in (part.basis, whole.basis)
    if part.value is None or not whole.value or uncertain:
        return Quantity("share", None, Unit.SHARE, Basis.UNKNOWN)
    return Quantity("share", part.value / whole.value, Unit.SHARE, whole.basis, whole.model)


def _unknown(calls: tuple[UnknownCalls, ...]) -> Table:
    rows = tuple(
        (
            group.target or "without a target",
            Quantity("calls", group.calls),
            f"{', '.join(group.operands)} -> {group.result}",
            group.reason,
        )
        for group in calls
    )
    return Table(
        "unknown",
        "Not counted",
        (Column("custom call"), Column("calls", Unit.COUNT), Column("first one"), Column("why")),
        rows,
        "Whatever these compute is missing from the numbers above.",
    )


def _summary(ledger: FlopLedger, ours: Quantity, theirs: Quantity, ratio: Quantity) -> str:
    if ours.value is None:
        head = "How many FLOPs the products take is unknown."
    else:
        bound = {"lower bound": "at least ", "upper bound": "at most "}
        about = bound.get(ours.model or "", "") if ours.basis is Basis.BOUNDED else ""
        head = f"Products take {about}{units.flops(ours.value)} per execution."
    if theirs.value is None:
        tail = "XLA's own count is not known."
    else:
        tail = f"XLA's own count is {units.flops(theirs.value)}"
        tail += f", ratio {units.ratio(ratio.value)}." if ratio.value is not None else "."
    missed = sum(group.calls for group in ledger.unknown_calls)
    gap = f" Not counted: {plural(missed, 'custom call')}." if missed else ""
    return f"{head} {tail}{gap}"
