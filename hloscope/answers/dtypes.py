"""In which types a program multiplies, adds up, converts and exchanges, as a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from hloscope import units
from hloscope.ir import Instruction
from hloscope.passes.collective_dtypes import CollectiveDtypes, WideCollective
from hloscope.passes.converts import Convert, Converts
from hloscope.passes.dtype_products import DtypeProducts, PartialSums, ProductDtypes
from hloscope.passes.flops.totals import NOTHING, FlopTotal
from hloscope.passes.narrow_reductions import NarrowReductions
from hloscope.passes.parameter_casts import ParameterCast, ParameterCasts
from hloscope.passes.promotions import Promotions
from hloscope.passes.quantization import Quantization
from hloscope.passes.round_trips import RoundTrip, RoundTrips
from hloscope.passes.traffic import Traffic
from hloscope.passes.wide_types import WideTypes
from hloscope.pipeline.audit import AuditSubject, audit, plural, trust_of
from hloscope.pipeline.config import Configuration
from hloscope.pipeline.findings import Basis, Category, Column, Quantity, Report, Table, Unit
from hloscope.pipeline.rules import RULES
from hloscope.pipeline.session import Session

_T = TypeVar("_T")

__all__ = ["SHOWN", "report_dtypes"]

SHOWN = 8
"""Rows of a table unless asked otherwise."""

_ONCE = "each branch taken, loops of unknown length run once"


def report_dtypes(
    session: Session,
    subject: AuditSubject,
    *,
    top: int = SHOWN,
    config: Configuration | None = None,
) -> Report:
    """Say in which types a program works, with what its rules on types find.

    Args:
        session: Gives the analyses.
        subject: Gives the report its head.
        top: Rows of each table; 0 for all.
        config: What to ignore among the findings.

    Raises:
        AnalysisFailedError: The program could not be counted.
    """
    products = session.get(DtypeProducts)
    rules = {code: rule for code, rule in RULES.items() if rule.category is Category.DTYPE_CHURN}
    found = audit(session, subject, rules, config)
    trust, missing = trust_of(session)
    total = _total(products.rows)
    tables = [
        _products(products, total),
        _converts(session.get(Converts), session.get(Traffic).total(), top),
        _round_trips(session.get(RoundTrips), top),
        _casts(session.get(ParameterCasts), top),
        _wide_exchanges(session.get(CollectiveDtypes), top),
        _narrow_sums(session.get(CollectiveDtypes), session.get(NarrowReductions), top),
        _wide_types(session.get(WideTypes), top),
        _promotions(session.get(Promotions), top),
        _quantization(session.get(Quantization), total),
    ]
    notes = [*_notes(products), *found.notes, *([missing] if missing else [])]
    return Report(
        command="dtypes",
        subject=subject.name,
        header=subject.header(),
        findings=found.findings,
        tables=tuple(table for table in tables if table.rows),
        trust=trust,
        summary=_summary(products, total, found),
        notes=tuple(dict.fromkeys(notes)),
        failures=found.failures,
        suppressed=found.suppressed,
    )


def _total(rows: Iterable[ProductDtypes]) -> FlopTotal:
    total = NOTHING
    for row in rows:
        total += row.row.total
    return total


def _summary(products: DtypeProducts, total: FlopTotal, found: Report) -> str:
    flops: Counter[str] = Counter()
    for row in products.rows:
        flops[_names(row.written)] += row.row.nominal
    parts = [
        f"{units.share(number / total.nominal)} in {name}"
        for name, number in flops.most_common(3)
        if number
    ]
    head = f"Products: {', '.join(parts)}." if parts else "The program computes no products."
    many = plural(len(found.findings), "finding")
    return f"{head} {many} on types." if found.findings else f"{head} No findings on types."


def _notes(products: DtypeProducts) -> list[str]:
    notes = []
    by_hand = [row for row in products.rows if row.partial is PartialSums.XLA]
    if by_hand:
        notes.append(
            f"XLA split {plural(len(by_hand), 'product')} along the contracted dimension and adds "
            "the parts up in float32 itself: that sum is none of the program's"
        )
    notes += [
        f"products of {_names(operands)} are added up in {' and '.join(sums)}"
        for operands, sums in products.mixed_accumulation.items()
    ]
    silent = [r for r in products.rows if "f32" in r.multiplied and not r.rounding]
    if any(_names(row.written) == "f32" for row in silent):
        notes.append(
            "where nothing is said of rounding, float32 operands are multiplied as the device "
            "does by default: GPUs may use TF32, TPUs one pass in bfloat16"
        )
    return notes


def _names(dtypes: Sequence[str]) -> str:
    """``bf16`` for two of a kind, else ``bf16 x f32``."""
    return " x ".join(dict.fromkeys(dtypes)) or "unknown"


def _products(products: DtypeProducts, total: FlopTotal) -> Table:
    groups: dict[tuple[str, ...], list[ProductDtypes]] = {}
    for row in products.rows:
        key = (
            _names(row.written),
            _names(row.multiplied),
            row.result,
            row.accumulation or "not said",
            row.rounding,
            row.partial.value,
        )
        groups.setdefault(key, []).append(row)
    ranked = sorted(groups.items(), key=lambda item: -_total(item[1]).nominal)
    rows: list[tuple[str | Quantity, ...]] = []
    for (written, multiplied, result, sums, rounded, partial), members in ranked:
        flops = _total(members)
        ways = [f"multiplied in {multiplied}"] if multiplied != written else []
        ways += [rounded if rounded == "full" else f"rounded to {rounded}"] if rounded else []
        ways += [partial] if partial else []
        rows.append(
            (
                written,
                result,
                sums,
                Quantity("products", len(members)),
                flops.quantity("FLOPs"),
                _share(flops, total),
                ", ".join(ways),
            )
        )
    return Table(
        "products",
        "Products by the types that they multiply",
        (
            Column("operands"),
            Column("result"),
            Column("summed in"),
            Column("products", Unit.COUNT),
            Column("FLOPs", Unit.FLOPS),
            Column("share", Unit.SHARE),
            Column("how"),
        ),
        tuple(rows),
    )


def _share(part: FlopTotal, whole: FlopTotal) -> Quantity:
    exact = part.basis is not Basis.BOUNDED and whole.basis is not Basis.BOUNDED
    if not whole.nominal:
        return Quantity("share", None, Unit.SHARE, Basis.UNKNOWN)
    value = part.nominal / whole.nominal
    if exact:
        return Quantity("share", value, Unit.SHARE)
    return Quantity("share", value, Unit.SHARE, Basis.MODELLED, _ONCE)


def _converts(converts: Converts, traffic: int, top: int) -> Table:
    groups: dict[tuple[str, str, bool], list[Convert]] = {}
    for row in converts.rows:
        if row.elements > 1:
            groups.setdefault((row.source, row.result, row.asked_for), []).append(row)
    ranked = sorted(groups.items(), key=lambda item: -_moved(item[1]))
    rows: list[tuple[str | Quantity, ...]] = [
        (
            f"{source} to {result}",
            "program" if asked_for else "XLA",
            Quantity("converts", len(members)),
            Quantity("alone", sum(row.alone for row in members)),
            _bytes("bytes", _moved(members), members),
            _part(_moved(members), traffic, members),
        )
        for (source, result, asked_for), members in _first(ranked, top)
    ]
    return Table(
        "converts",
        "Conversions of arrays",
        (
            Column("conversion"),
            Column("by"),
            Column("converts", Unit.COUNT),
            Column("alone", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("share", Unit.SHARE),
        ),
        tuple(rows),
        _rest(ranked, top) + "alone: in a launch that does nothing else. bytes: what they read "
        "from and write to device memory themselves; share: of all its traffic.",
    )


def _moved(rows: Iterable[Convert]) -> int:
    return sum(row.nominal_bytes for row in rows)


def _round_trips(trips: RoundTrips, top: int) -> Table:
    groups: dict[tuple[str, str, str], list[RoundTrip]] = {}
    for row in trips.rows:
        kind = f"{row.there.source} to {row.there.result} and back"
        by = "program" if row.asked_for else "XLA"
        groups.setdefault((kind, by, _line(row.back.instruction)), []).append(row)
    ranked = sorted(groups.items(), key=lambda item: -sum(r.nominal_bytes for r in item[1]))
    rows: list[tuple[str | Quantity, ...]] = [
        (
            kind,
            by,
            line,
            Quantity("round trips", len(members)),
            _bytes(
                "bytes for nothing",
                sum(row.nominal_bytes for row in members),
                [row.back for row in members],
            ),
            "rounds" if members[0].loses else "exact",
        )
        for (kind, by, line), members in _first(ranked, top)
    ]
    return Table(
        "round_trips",
        "Converted and straight back",
        (
            Column("round trip"),
            Column("by"),
            Column("line"),
            Column("count", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("value"),
        ),
        tuple(rows),
        _rest(ranked, top) + "bytes: what memory moves beyond what it would without the pair; "
        "none in a launch that also computes.",
    )


def _casts(casts: ParameterCasts, top: int) -> Table:
    again = [row for row in casts.rows if row.times_over > 1]
    ranked = sorted(again, key=lambda row: (-row.wasted_bytes, -row.bytes))
    rows: list[tuple[str | Quantity, ...]] = [
        (
            row.parameter.op_name or row.parameter.name,
            f"{row.converts[0].source} to {row.result}",
            _times(row),
            _bytes("bytes", row.bytes, row.converts),
            _bytes("once", row.bytes_once, row.converts),
        )
        for row in _first(ranked, top)
    ]
    return Table(
        "parameter_casts",
        "Arguments converted more than once",
        (
            Column("argument"),
            Column("conversion"),
            Column("times", Unit.RATIO),
            Column("bytes", Unit.BYTES),
            Column("once", Unit.BYTES),
        ),
        tuple(rows),
        _rest(ranked, top) + "once: what converting it ahead of all uses would move.",
    )


def _times(cast: ParameterCast) -> Quantity:
    if _exact(cast.converts):
        return Quantity("times over", cast.times_over, Unit.RATIO)
    return Quantity("times over", cast.times_over, Unit.RATIO, Basis.MODELLED, _ONCE)


def _wide_exchanges(dtypes: CollectiveDtypes, top: int) -> Table:
    groups: dict[tuple[str, str, str], list[WideCollective]] = {}
    for row in dtypes.wide:
        kind, types = row.collective.kind.value, f"{row.wide}, {row.narrow} would do"
        where = _line(row.collective.instruction) or row.collective.instruction.name
        groups.setdefault((kind, types, where), []).append(row)
    ranked = sorted(groups.items(), key=lambda item: -sum(r.saved_bytes or 0 for r in item[1]))
    rows: list[tuple[str | Quantity, ...]] = [
        (kind, types, where, _runs(members), _wire(members))
        for (kind, types, where), members in _first(ranked, top)
    ]
    return Table(
        "wide_collectives",
        "Exchanges in a wider type than needed",
        (
            Column("exchange"),
            Column("type"),
            Column("where"),
            Column("runs", Unit.COUNT),
            Column("saved", Unit.BYTES),
        ),
        tuple(rows),
        _rest(ranked, top) + "saved: bytes that one device would not send.",
    )


def _narrow_sums(dtypes: CollectiveDtypes, reductions: NarrowReductions, top: int) -> Table:
    rows: list[tuple[str | Quantity, ...]] = []
    exchanged: Counter[tuple[str, str, bool]] = Counter()
    widest: dict[tuple[str, str, bool], int] = {}
    for one in dtypes.narrow_sums:
        key = (one.collective.kind.value, one.dtype, one.gradient)
        exchanged[key] += 1
        widest[key] = max(widest.get(key, 0), one.collective.group_size or 0)
    for (kind, dtype, gradient), number in exchanged.most_common():
        known = widest[kind, dtype, gradient]
        rows.append(
            (
                f"{kind}, gradients" if gradient else kind,
                dtype,
                Quantity("sums", number),
                Quantity("terms", known)
                if known
                else Quantity("terms", None, Unit.COUNT, Basis.UNKNOWN),
            )
        )
    lines: dict[tuple[str, str], list[int]] = {}
    for row in reductions.rows:
        place = _line(row.instruction) or row.instruction.name
        lines.setdefault((f"reduce, {place}", row.dtype), []).append(row.terms)
    ranked = list(lines.items())
    rows += [
        (place, dtype, Quantity("sums", len(terms)), Quantity("terms", max(terms)))
        for (place, dtype), terms in _first(ranked, top)
    ]
    return Table(
        "narrow_sums",
        "Sums kept in sixteen bits or less",
        (
            Column("sum"),
            Column("type"),
            Column("sums", Unit.COUNT),
            Column("terms", Unit.COUNT),
        ),
        tuple(rows),
        _rest(ranked, top) + "terms: of the longest one; bfloat16 loses what is added beyond some "
        "hundreds of terms of one size.",
    )


def _wide_types(wide: WideTypes, top: int) -> Table:
    ranked = [*wide.float64, *(line for line in wide.int64 if line.largest.shape.num_elements > 1)]
    rows: list[tuple[str | Quantity, ...]] = [
        (
            line.dtype,
            _line(line.largest) or line.largest.name,
            Quantity("instructions", len(line.instructions)),
            Quantity("bytes", line.bytes, Unit.BYTES)
            if line.exact
            else Quantity("bytes", line.bytes, Unit.BYTES, Basis.MODELLED, _ONCE),
            f"{line.enters[0].opcode} {line.enters[0].name}" if line.enters else "handed on",
        )
        for line in _first(ranked, top)
    ]
    return Table(
        "wide_types",
        "Lines that compute in 64 bits",
        (
            Column("type"),
            Column("line"),
            Column("instrs", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("comes in by"),
        ),
        tuple(rows),
        _rest(ranked, top),
    )


def _promotions(promotions: Promotions, top: int) -> Table:
    ranked = list(promotions.rows)
    rows: list[tuple[str | Quantity, ...]] = [
        (
            f"{row.source} to {row.result}",
            _line(row.converts[0].instruction),
            Quantity("elements", row.elements)
            if _exact(row.converts)
            else Quantity("elements", row.elements, Unit.COUNT, Basis.MODELLED, _ONCE),
            _scalar(row.scalar),
        )
        for row in _first(ranked, top)
    ]
    return Table(
        "promotions",
        "Widened where a wide number meets them",
        (
            Column("conversion"),
            Column("line"),
            Column("elements", Unit.COUNT),
            Column("number"),
        ),
        tuple(rows),
        _rest(ranked, top) + "A Python number would not widen; an explicit cast on the same line "
        "looks alike.",
    )


def _scalar(scalar: Instruction | None) -> str:
    if scalar is None:
        return ""
    if scalar.opcode == "constant":
        return f"{scalar.shape.dtype} {scalar.payload}".strip()
    return scalar.op_name or scalar.name


def _quantization(quantization: Quantization, total: FlopTotal) -> Table:
    if not quantization.used:
        return Table("quantization", "", (), ())
    converts = (*quantization.into, *quantization.out_of)
    rate = quantization.flops_per_byte
    flops = _total(quantization.products)
    rows: list[tuple[str | Quantity, ...]] = [
        ("conversions into eight bits or less", Quantity("converts", len(quantization.into))),
        ("conversions out of them", Quantity("converts", len(quantization.out_of))),
        ("bytes that these move", _bytes("bytes", quantization.convert_bytes, converts)),
        (
            "of these, not inside a product",
            _bytes("bytes", quantization.wasted_bytes, converts),
        ),
        ("products in eight bits", Quantity("products", len(quantization.products))),
        ("their FLOPs", flops.quantity("FLOPs")),
        ("share of all products", _share(flops, total)),
        ("products of widened operands", Quantity("products", len(quantization.widened))),
        (
            "arguments kept in eight bits",
            Quantity("bytes", quantization.stored_bytes, Unit.BYTES),
        ),
    ]
    if rate is not None:
        exact = _exact(converts) and flops.basis is Basis.EXACT
        basis, model = (Basis.EXACT, None) if exact else (Basis.MODELLED, _ONCE)
        rows.append(
            (
                "FLOPs for each byte of conversions",
                Quantity("FLOPs per byte", rate, Unit.COUNT, basis, model),
            )
        )
    return Table(
        "quantization",
        "Quantized: " + _gain(quantization),
        (Column("what"), Column("how much")),
        tuple(rows),
    )


def _gain(quantization: Quantization) -> str:
    """What quantizing gained, in words that need no chip."""
    if quantization.flops:
        rate = quantization.flops_per_byte
        return "products run in eight bits" + (
            ", with no conversions in memory" if rate is None else ""
        )
    if quantization.stored_bytes and not quantization.wasted_bytes:
        return "memory is saved, no product runs in eight bits"
    return "nothing gained, no product runs in eight bits"


def _bytes(name: str, value: int, converts: Iterable[Convert]) -> Quantity:
    """Bytes that some conversions lead to: exact where it is known how often each runs."""
    if _exact(converts):
        return Quantity(name, value, Unit.BYTES)
    return Quantity(name, value, Unit.BYTES, Basis.MODELLED, _ONCE)


def _exact(converts: Iterable[Convert]) -> bool:
    return all(convert.times.exact is not None for convert in converts)


def _runs(rows: Sequence[WideCollective]) -> Quantity:
    runs = sum(row.runs for row in rows)
    if all(row.collective.times.exact is not None for row in rows):
        return Quantity("runs", runs)
    return Quantity("runs", runs, Unit.COUNT, Basis.MODELLED, _ONCE)


def _wire(rows: Sequence[WideCollective]) -> Quantity:
    known = [row.saved_bytes for row in rows if row.saved_bytes is not None]
    if len(known) < len(rows):
        return Quantity("saved", None, Unit.BYTES, Basis.UNKNOWN)
    return Quantity("saved", sum(known), Unit.BYTES, Basis.MODELLED, f"ring algorithm, {_ONCE}")


def _part(part: int, whole: int, converts: Iterable[Convert]) -> Quantity:
    if not whole:
        return Quantity("share", None, Unit.SHARE, Basis.UNKNOWN)
    if _exact(converts):
        return Quantity("share", part / whole, Unit.SHARE)
    return Quantity("share", part / whole, Unit.SHARE, Basis.MODELLED, _ONCE)


def _line(instruction: Instruction) -> str:
    location = instruction.location
    if location is None:
        return instruction.op_name.split(";")[0]
    return f"{location.file}:{location.line}"


def _first(ranked: Sequence[_T], top: int) -> Sequence[_T]:
    return ranked[:top] if top else ranked


def _rest(ranked: Sequence[object], top: int) -> str:
    left = len(ranked) - top
    return f"{left} more. " if top and left > 0 else ""
