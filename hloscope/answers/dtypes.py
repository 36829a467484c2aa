"""In which types a program multiplies, adds up, converts and exchanges, as a report."""

from __future__ import annotations

from collections import Counter

from hloscope import units
from hloscope.answers.dtype_convert_tables import (
    casts_table,
    converts_table,
    promotions_table,
    round_trips_table,
    wide_exchanges_table,
    wide_types_table,
)
from hloscope.answers.dtype_product_tables import (
    names_of,
    narrow_sums_table,
    products_table,
    quantization_table,
    total_of,
)
from hloscope.passes.collective_dtypes import CollectiveDtypes
from hloscope.passes.converts import Converts
from hloscope.passes.dtype_products import DtypeProducts, PartialSums
from hloscope.passes.flops.totals import FlopTotal
from hloscope.passes.narrow_reductions import NarrowReductions
from hloscope.passes.parameter_casts import ParameterCasts
from hloscope.passes.promotions import Promotions
from hloscope.passes.quantization import Quantization
from hloscope.passes.round_trips import RoundTrips
from hloscope.passes.traffic import Traffic
from hloscope.passes.wide_types import WideTypes
from hloscope.pipeline.audit import AuditSubject, audit, plural, trust_of
from hloscope.pipeline.config import Configuration
from hloscope.pipeline.findings import Category, Report
from hloscope.pipeline.rules import RULES
from hloscope.pipeline.session import Session

__all__ = ["SHOWN", "report_dtypes"]

SHOWN = 8
"""Rows of a table unless asked otherwise."""


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
    total = total_of(products.rows)
    exchanges = session.get(CollectiveDtypes)
    quantization = session.get(Quantization)
    tables = [
        products_table(products, total),
        converts_table(session.get(Converts), session.get(Traffic).total(), top),
        round_trips_table(session.get(RoundTrips), top),
        casts_table(session.get(ParameterCasts), top),
        wide_exchanges_table(exchanges, top),
        narrow_sums_table(exchanges, session.get(NarrowReductions), top),
        wide_types_table(session.get(WideTypes), top),
        promotions_table(session.get(Promotions), top),
        quantization_table(quantization, total),
    ]
    notes = [*_notes(products, quantization), *found.notes, *([missing] if missing else [])]
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


def _summary(products: DtypeProducts, total: FlopTotal, found: Report) -> str:
    flops: Counter[str] = Counter()
    for row in products.rows:
        flops[names_of(row.written)] += row.row.nominal
    parts = [
        f"{units.share(number / total.nominal)} in {name}"
        for name, number in flops.most_common(3)
        if number
    ]
    head = f"Products: {', '.join(parts)}." if parts else "The program computes no products."
    many = plural(len(found.findings), "finding")
    return f"{head} {many} on types." if found.findings else f"{head} No findings on types."


def _notes(products: DtypeProducts, quantization: Quantization) -> list[str]:
    notes = []
    if quantization.without_unit:
        notes.append(
            f"the chip has no unit for {' and '.join(sorted(quantization.without_unit))}: it "
            "multiplies such operands in bfloat16, whatever type stands on the product"
        )
    by_hand = [row for row in products.rows if row.partial is PartialSums.XLA]
    if by_hand:
        notes.append(
            f"XLA split {plural(len(by_hand), 'product')} along the contracted dimension and adds "
            "the parts up in float32 itself: that sum is none of the program's"
        )
    notes += [
        f"products of {names_of(operands)} are added up in {' and '.join(sums)}"
        for operands, sums in products.mixed_accumulation.items()
    ]
    silent = [r for r in products.rows if "f32" in r.multiplied and not r.rounding]
    if any(names_of(row.written) == "f32" for row in silent):
        notes.append(
            "where nothing is said of rounding, float32 operands are multiplied as the device "
            "does by default: GPUs may use TF32, TPUs one pass in bfloat16"
        )
    return notes
