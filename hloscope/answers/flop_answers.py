"""Three independent answers to how many FLOPs a step takes, and why they differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from hloscope.errors import Unavailable
from hloscope.ir.jaxpr_count import JaxprCount
from hloscope.passes.flop_gap import Gap, GapPart, Reason
from hloscope.passes.flops.ledger import CausalConvention, FlopLedger
from hloscope.passes.jaxpr_gap import JaxprGap
from hloscope.passes.xla_gap import XlaGap
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Unit
from hloscope.pipeline.inputs import XlaCost
from hloscope.pipeline.session import Session

__all__ = ["Answers", "answers_table", "find_answers", "ratio", "walks"]


@dataclass(frozen=True, slots=True)
class Answers:
    """What each of the three says, for one execution on one device.

    Attributes:
        ledger: The optimized HLO's products, in the convention that was asked for.
        ours: Their FLOPs.
        xla: XLA's own figure.
        xla_note: Where it comes from, or why there is none.
        jaxpr: The jaxpr's FLOPs of one device.
        jaxpr_note: Why there are none.
        count: The jaxpr's count, over all devices.
        devices: Devices that the jaxpr's FLOPs are shared by.
        from_xla: The way from XLA's figure to the products.
        from_jaxpr: The way from the jaxpr's to the products.
    """

    ledger: FlopLedger
    ours: Quantity
    xla: Quantity
    xla_note: str
    jaxpr: Quantity
    jaxpr_note: str
    count: JaxprCount | None
    devices: int
    from_xla: Gap | None
    from_jaxpr: Gap | None

    @property
    def most(self) -> Quantity | None:
        """The most that the products can take, where that is known and not the least too."""
        total = self.ledger.total
        if not total.low or total.high is None or total.high == total.low:
            return None
        return Quantity("products", total.high, Unit.FLOPS, Basis.BOUNDED, "upper bound")

    @property
    def residue(self) -> Quantity:
        """The larger of the two unexplained parts, as a share of the products."""
        known = [gap.residue for gap in (self.from_xla, self.from_jaxpr) if gap is not None]
        shares = [share for share in known if share is not None]
        if not shares:
            return Quantity("unexplained", None, Unit.SHARE, Basis.UNKNOWN)
        return Quantity("unexplained", _number(max(shares)), Unit.SHARE)


def find_answers(session: Session, causal: CausalConvention) -> Answers:
    """Ask all three; what a subject cannot say is unknown, with the reason.

    Args:
        session: Gives the ledger and whatever the subject has beside it.
        causal: How masked attention counts; see :class:`FlopLedger`.

    Raises:
        AnalysisFailedError: The program could not be counted.
    """
    full = session.get(FlopLedger)
    ledger = full.with_causal(causal)
    masked = Fraction(ledger.total.nominal - full.total.nominal)
    xla, xla_note = _xla(session)
    from_xla, _ = _available(session, XlaGap)
    from_jaxpr, jaxpr_note = _available(session, JaxprGap)
    count, _ = _available(session, JaxprCount)
    return Answers(
        ledger,
        ledger.total.quantity("products"),
        xla,
        xla_note,
        _jaxpr(count, from_jaxpr),
        jaxpr_note,
        count,
        1 if from_jaxpr is None else from_jaxpr.devices,
        None if from_xla is None else _masked(from_xla.gap, masked),
        None if from_jaxpr is None else _masked(from_jaxpr.gap, masked),
    )


T = TypeVar("T")


def _available(session: Session, wanted: type[T]) -> tuple[T | None, str]:
    """An object of the session's, or why there is none."""
    try:
        return session.get(wanted), ""
    except Unavailable as reason:
        return None, reason.message


def _masked(gap: Gap, masked: Fraction) -> Gap:
    """The same way to a ledger that leaves masked pairs out."""
    if not masked:
        return gap
    part = GapPart(Reason.MASKED, masked)
    return replace(gap, after=gap.after + masked, parts=(*gap.parts, part))


def _xla(session: Session) -> tuple[Quantity, str]:
    """XLA's figure, and where it comes from or why there is none."""
    cost, missing = _available(session, XlaCost)
    if cost is None:
        return Quantity("XLA", None, Unit.FLOPS, Basis.UNKNOWN), missing
    # XLA writes a negative number for a count that it does not know.
    if cost.flops is None or cost.flops < 0:
        return Quantity("XLA", None, Unit.FLOPS, Basis.UNKNOWN), "it gives no number of FLOPs"
    return Quantity("XLA", cost.flops, Unit.FLOPS, Basis.MODELLED, "XLA"), cost.source


def _jaxpr(count: JaxprCount | None, found: JaxprGap | None) -> Quantity:
    if count is None or found is None:
        return Quantity("jaxpr", None, Unit.FLOPS, Basis.UNKNOWN)
    low = _number(Fraction(count.total.low, found.devices))
    if not count.total.exact:
        return Quantity("jaxpr", low, Unit.FLOPS, Basis.BOUNDED, "lower bound")
    if count.uncounted:
        return Quantity("jaxpr", low, Unit.FLOPS, Basis.BOUNDED, "lower bound")
    if count.models:
        return Quantity("jaxpr", low, Unit.FLOPS, Basis.MODELLED, ", ".join(count.models))
    return Quantity("jaxpr", low, Unit.FLOPS)


def ratio(ours: Quantity, theirs: Quantity) -> Quantity:
    """Ours over theirs; as uncertain as the less certain of the two."""
    if ours.value is None or not theirs.value:
        return Quantity("ratio", None, Unit.RATIO, Basis.UNKNOWN)
    bounded = next((each for each in (ours, theirs) if each.basis is Basis.BOUNDED), None)
    modelled = next((each for each in (ours, theirs) if each.basis is Basis.MODELLED), ours)
    basis, model = (
        (modelled.basis, modelled.model) if bounded is None else (Basis.BOUNDED, "of a bound")
    )
    return Quantity("ratio", ours.value / theirs.value, Unit.RATIO, basis, model)


def answers_table(answers: Answers) -> Table:
    """The three figures, and how many times each the products are."""
    rows: list[tuple[str | Quantity, ...]] = [
        ("optimized HLO: products", answers.ours, _no_ratio())
    ]
    most = answers.most
    if most is not None:
        rows.append(("optimized HLO: at most", most, ratio(most, answers.ours)))
    rows += [
        ("XLA: cost_analysis()", answers.xla, ratio(answers.ours, answers.xla)),
        ("jaxpr: products", answers.jaxpr, ratio(answers.ours, answers.jaxpr)),
    ]
    return Table(
        "comparison",
        f"Three answers, for one execution{' on one device' if answers.devices > 1 else ''}",
        (Column("count"), Column("FLOPs", Unit.FLOPS), Column("HLO over it", Unit.RATIO)),
        tuple(rows),
    )


def _no_ratio() -> Quantity:
    return Quantity("ratio", 1.0, Unit.RATIO)


def walks(answers: Answers) -> list[Table]:
    """From each of the other answers to the products, reason by reason."""
    tables = []
    for name, gap, start in (
        ("from_xla", answers.from_xla, "XLA's figure"),
        ("from_jaxpr", answers.from_jaxpr, "the jaxpr's products"),
    ):
        if gap is not None:
            tables.append(_walk(name, gap, start))
    return tables


def _walk(name: str, gap: Gap, start: str) -> Table:
    parts = sorted(gap.parts, key=lambda part: -abs(part.flops))
    rows = [_step(gap.before, gap, start)]
    rows += [_step(part.flops, gap, _because(part)) for part in parts if part.reason.explains]
    rows += [
        _step(part.flops, gap, f"unexplained: {_because(part)}")
        for part in parts
        if not part.reason.explains
    ]
    if not gap.unexplained:
        rows.append(_step(Fraction(0), gap, "unexplained"))
    rows.append(_step(gap.after, gap, "the optimized HLO's products"))
    return Table(
        name,
        f"From {start} to the optimized HLO's",
        (Column("FLOPs", Unit.FLOPS), Column("share", Unit.SHARE), Column("why")),
        tuple(rows),
    )


def _step(flops: Fraction, gap: Gap, why: str) -> tuple[Quantity, Quantity, str]:
    share = (
        Quantity("share", _number(flops / gap.after), Unit.SHARE)
        if gap.after
        else Quantity("share", None, Unit.SHARE, Basis.UNKNOWN)
    )
    return Quantity("FLOPs", _number(flops), Unit.FLOPS), share, why


def _because(part: GapPart) -> str:
    return f"{part.reason.title} ({part.evidence})" if part.evidence else part.reason.title


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)
