"""FLOPs of the optimized HLO beside XLA's own count and the jaxpr's, as a report."""

from __future__ import annotations

from hloscope import units
from hloscope.answers.flop_answers import Answers, answers_table, find_answers, ratio, walks
from hloscope.answers.flop_breakdown import breakdown, instructions, launches, unknown_calls
from hloscope.answers.flop_view import FlopView, Grouping
from hloscope.ir.jaxpr_count import JaxprCount
from hloscope.passes.flops.counts import HEADLINE
from hloscope.passes.flops.elementwise import ElementwiseLedger
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.flops.totals import NOTHING, FlopTotal
from hloscope.passes.work import WorkLedger
from hloscope.pipeline.audit import AuditSubject, plural, trust_of
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.session import Session

__all__ = ["report_flops"]

_METHOD = (
    "hloscope counts products (a multiply-add is two), also inside library calls, and each as "
    "often as its loop runs; XLA counts elementwise work too, a loop's body once, and nothing "
    "inside library calls; the jaxpr is what was written, before any compiler."
)
_SHOWN = 10  # groups that --by lists unless asked otherwise


_DEFAULT = FlopView()


def report_flops(session: Session, subject: AuditSubject, view: FlopView = _DEFAULT) -> Report:
    """Set hloscope's count of products beside XLA's cost analysis and the jaxpr's count.

    Args:
        session: Gives the ledger, and the other two where the subject has them.
        subject: Gives the report its head.
        view: What to show beside the totals.

    Raises:
        AnalysisFailedError: The program could not be counted.
    """
    answers = find_answers(session, view.causal)
    trust, missing = trust_of(session)
    notes = [_METHOD, *_notes(answers), *([missing] if missing else [])]
    return Report(
        command="flops",
        subject=subject.name,
        header=subject.header(),
        tables=tuple(_tables(session, answers, view)),
        trust=trust,
        summary=_summary(answers),
        notes=tuple(notes),
    )


def _tables(session: Session, answers: Answers, view: FlopView) -> list[Table]:
    ledger = answers.ledger
    tables = [answers_table(answers), *walks(answers), _kinds(ledger)]
    if any(total.nominal for total in (ledger.recomputed, _jaxpr_recomputed(answers.count))):
        tables.append(_recomputed(answers))
    tables.append(_beside(ledger, session.get(ElementwiseLedger)))
    if view.everything:
        tables += [breakdown(ledger, by, depth=view.depth) for by in Grouping]
        tables.append(instructions(ledger, wide=True))
        tables.append(launches(session.get(WorkLedger)))
        if answers.count is not None:
            tables.append(_sites(answers.count))
    else:
        if view.by is not None:
            tables.append(breakdown(ledger, view.by, depth=view.depth, top=view.top or _SHOWN))
        elif view.top is not None:
            tables.append(instructions(ledger, view.top))
    if ledger.unknown_calls:
        tables.append(unknown_calls(ledger.unknown_calls))
    if answers.count is not None and answers.count.uncounted:
        tables.append(_uncounted(answers.count))
    return tables


def _notes(answers: Answers) -> list[str]:
    ledger, count = answers.ledger, answers.count
    notes = []
    if answers.xla_note:
        notes.append(f"XLA's figure: {answers.xla_note}")
    if answers.jaxpr_note:
        notes.append(f"no jaxpr's count: {answers.jaxpr_note}")
    if answers.devices > 1:
        notes.append(
            f"the HLO is the program of each of {answers.devices} devices; the jaxpr's count is "
            "the whole program's, divided by them"
        )
    masked = [row for row in ledger.rows if row.count.masked_flops is not None]
    if masked:
        other = "half" if ledger.causal == "full" else "full"
        counted = (
            "every pair of a query and a key"
            if ledger.causal == "full"
            else "the pairs that the mask leaves"
        )
        notes.append(
            f"masked attention counts {counted} (--causal {ledger.causal}), in "
            f"{plural(len(masked), 'call')}; --causal {other} counts the other way"
        )
    if ledger.total.low != ledger.total.high:
        notes.append(
            "the ways between the counts take the dearest branch, run a loop of unknown length "
            "once, and leave out what is unknown, as XLA does"
        )
    if count is not None:
        notes += [f"in the jaxpr: {note}" for note in count.notes]
    return notes


def _kinds(ledger: FlopLedger) -> Table:
    numbers = dict.fromkeys(ledger.by_kind, 0)
    for row in ledger.rows:
        numbers[row.count.kind] = numbers.get(row.count.kind, 0) + 1
    whole = ledger.total.quantity("products")
    rows = [
        (
            kind.heading,
            Quantity("instructions", number),
            ledger.by_kind.get(kind, NOTHING).quantity(kind.value),
            _share(ledger.by_kind.get(kind, NOTHING).quantity(kind.value), whole),
        )
        for kind, number in numbers.items()
        if kind in HEADLINE
    ]
    return Table(
        "kinds",
        "Products by kind",
        (
            Column("kind"),
            Column("instructions", Unit.COUNT),
            Column("FLOPs", Unit.FLOPS),
            Column("share", Unit.SHARE),
        ),
        tuple(rows),
        "" if rows else "The program computes no products that hloscope knows.",
    )


def _share(part: Quantity, whole: Quantity) -> Quantity:
    """Part of the whole; unknown where the whole or the part is not one number."""
    uncertain = Basis.BOUNDED in (part.basis, whole.basis)
    if part.value is None or not whole.value or uncertain:
        return Quantity("share", None, Unit.SHARE, Basis.UNKNOWN)
    return Quantity("share", part.value / whole.value, Unit.SHARE, whole.basis, whole.model)


def _recomputed(answers: Answers) -> Table:
    """The parts of both counts that compute something a second time."""
    rows: list[tuple[str | Quantity, ...]] = [
        (
            "optimized HLO: by the names of its instructions",
            answers.ledger.recomputed.quantity("recomputed"),
        )
    ]
    if answers.count is not None:
        again = _jaxpr_recomputed(answers.count)
        each = FlopTotal(
            again.low // answers.devices,
            None if again.high is None else again.high // answers.devices,
            again.nominal // answers.devices,
        )
        rows.append(("jaxpr: by jax.checkpoint", each.quantity("recomputed")))
    return Table(
        "recomputed",
        "Of these, computed again",
        (Column("count"), Column("FLOPs", Unit.FLOPS)),
        tuple(rows),
    )


def _jaxpr_recomputed(count: JaxprCount | None) -> FlopTotal:
    if count is None:
        return NOTHING
    again = count.recomputed
    return FlopTotal(again.low, again.high, again.nominal)


def _beside(ledger: FlopLedger, elementwise: ElementwiseLedger) -> Table:
    rows: list[tuple[str | Quantity, ...]] = [
        (kind.heading, total.quantity(kind.value)) for kind, total in elementwise.by_kind.items()
    ]
    functions = elementwise.transcendentals + ledger.transcendentals
    rows.append(("transcendental functions, one each", functions.quantity("transcendentals")))
    return Table(
        "beside",
        "Beside the products, as XLA counts it",
        (Column("kind"), Column("FLOPs", Unit.FLOPS)),
        tuple(rows),
    )


def _sites(count: JaxprCount) -> Table:
    """Where the jaxpr's products come from; of the whole program, over all devices."""
    return Table(
        "jaxpr",
        "The jaxpr's products",
        (
            Column("kind"),
            Column("source", text=Text.SOURCE),
            Column("pass"),
            Column("FLOPs of one", Unit.FLOPS),
            Column("runs", Unit.COUNT),
            Column("dead", Unit.COUNT),
            Column("repeated", Unit.COUNT),
        ),
        tuple(
            (
                site.kind,
                f"{site.file}:{site.line}" if site.file else "",
                "again" if site.recomputed else "backward" if site.backward else "forward",
                Quantity("FLOPs of one", site.each, Unit.FLOPS),
                Quantity("runs", site.runs),
                Quantity("dead", site.dead),
                Quantity("repeated", site.repeated),
            )
            for site in sorted(count.sites, key=lambda site: (-site.flops, site.file, site.line))
        ),
    )


def _uncounted(count: JaxprCount) -> Table:
    return Table(
        "jaxpr.uncounted",
        "Not counted in the jaxpr",
        (Column("primitive"), Column("runs", Unit.COUNT), Column("first one"), Column("why")),
        tuple(
            (
                f"{call.primitive} {call.name}".strip(),
                Quantity("runs", call.calls),
                call.shapes,
                call.reason,
            )
            for call in count.uncounted
        ),
    )


def _summary(answers: Answers) -> str:
    ours = answers.ours
    if ours.value is None:
        head = "How many FLOPs the products take is unknown."
    else:
        bound = {"lower bound": "at least ", "upper bound": "at most "}
        about = bound.get(ours.model or "", "") if ours.basis is Basis.BOUNDED else ""
        most = answers.most
        if most is not None and most.value is not None:
            amount = f"between {units.flops(ours.value)} and {units.flops(most.value)}"
        else:
            amount = f"{about}{units.flops(ours.value)}"
        head = f"Products take {amount} per execution."
    tails = [_beside_ours(ours, answers.xla, "XLA's own count")]
    if answers.jaxpr.value is not None:
        tails.append(_beside_ours(ours, answers.jaxpr, "The jaxpr's count"))
    missed = sum(group.calls for group in answers.ledger.unknown_calls)
    gap = f" Not counted: {plural(missed, 'custom call')}." if missed else ""
    return " ".join([head, *tails]) + gap


def _beside_ours(ours: Quantity, theirs: Quantity, name: str) -> str:
    if theirs.value is None:
        return f"{name} is not known."
    times = ratio(ours, theirs).value
    tail = f", ratio {units.ratio(times)}." if times is not None else "."
    return f"{name} is {units.flops(theirs.value)}{tail}"
