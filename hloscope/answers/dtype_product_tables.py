"""Tables of ``hloscope dtypes`` on products and sums, and on what quantizing gains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloscope.answers.ranked_table import Row, all_exact, counted, grouped, line_of, ranked_table
from hloscope.passes.collective_dtypes import CollectiveDtypes, NarrowSum
from hloscope.passes.dtype_products import DtypeProducts, ProductDtypes
from hloscope.passes.flops.totals import NOTHING, FlopTotal
from hloscope.passes.narrow_reductions import NarrowReduction, NarrowReductions
from hloscope.passes.quantization import Quantization
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit

__all__ = ["names_of", "narrow_sums_table", "products_table", "quantization_table", "total_of"]


def total_of(rows: Iterable[ProductDtypes]) -> FlopTotal:
    """FLOPs of some products together."""
    total = NOTHING
    for row in rows:
        total += row.row.total
    return total


def names_of(dtypes: Sequence[str]) -> str:
    """``bf16`` for two of a kind, else ``bf16 x f32``."""
    return " x ".join(dict.fromkeys(dtypes)) or "unknown"


def products_table(products: DtypeProducts, total: FlopTotal) -> Table:
    """Products by their types, all of them, most FLOPs first."""
    groups = grouped(products.rows, _types)

    def row(item: tuple[tuple[str, ...], list[ProductDtypes]]) -> Row:
        (written, multiplied, result, sums, rounded, partial), members = item
        flops = total_of(members)
        ways = [f"multiplied in {multiplied}"] if multiplied != written else []
        ways += [_ROUNDED.get(rounded, f"rounded to {rounded}")] if rounded else []
        ways += [partial] if partial else []
        return (
            written,
            result,
            sums,
            Quantity("products", len(members)),
            flops.quantity("FLOPs"),
            _share(flops, total),
            ", ".join(ways),
        )

    return ranked_table(
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
        sorted(groups.items(), key=lambda item: -total_of(item[1]).nominal),
        row,
        top=0,
    )


_ROUNDED = {"full": "full", "high": "precision high"}


def _types(row: ProductDtypes) -> tuple[str, ...]:
    return (
        names_of(row.written),
        names_of(row.multiplied),
        row.result,
        row.accumulation or "not said",
        row.rounding,
        row.partial.value,
    )


def _share(part: FlopTotal, whole: FlopTotal) -> Quantity:
    exact = part.basis is not Basis.BOUNDED and whole.basis is not Basis.BOUNDED
    share = part.nominal / whole.nominal if whole.nominal else None
    return counted("share", share, Unit.SHARE, exact=exact)


def narrow_sums_table(dtypes: CollectiveDtypes, reductions: NarrowReductions, top: int) -> Table:
    """Sums over devices in sixteen bits or less, then reductions by line."""
    exchanged = grouped(dtypes.narrow_sums, _exchange)
    ranked = sorted(exchanged.items(), key=lambda item: -len(item[1]))
    over_devices = [
        (
            what,
            dtype,
            Quantity("sums", len(sums)),
            counted("terms", max(s.collective.group_size or 0 for s in sums) or None),
        )
        for (what, dtype), sums in ranked
    ]
    lines = grouped(reductions.rows, _reduction)

    def row(item: tuple[tuple[str, str], list[NarrowReduction]]) -> Row:
        key, members = item
        terms = max(member.terms for member in members)
        return (*key, Quantity("sums", len(members)), Quantity("terms", terms))

    table = ranked_table(
        "narrow_sums",
        "Sums kept in sixteen bits or less",
        (
            Column("sum", text=Text.SOURCE),
            Column("type"),
            Column("sums", Unit.COUNT),
            Column("terms", Unit.COUNT),
        ),
        list(lines.items()),
        row,
        top=top,
        note="terms: of the longest one; bfloat16 loses what is added beyond some "
        "hundreds of terms of one size.",
    )
    return Table(table.name, table.title, table.columns, (*over_devices, *table.rows), table.note)


def _exchange(one: NarrowSum) -> tuple[str, str]:
    kind = one.collective.kind.value
    return f"{kind}, gradients" if one.gradient else kind, one.dtype


def _reduction(row: NarrowReduction) -> tuple[str, str]:
    return f"reduce, {line_of(row.instruction) or row.instruction.name}", row.dtype


def quantization_table(quantization: Quantization, total: FlopTotal) -> Table:
    """Conversions around eight bits beside the products in them; no rows where there are none."""
    if not quantization.used:
        return Table("quantization", "", (), ())
    converts = (*quantization.into, *quantization.out_of)
    exact = all_exact(converts)
    flops = total_of(quantization.products)
    rows: list[Row] = [
        ("conversions into eight bits or less", Quantity("converts", len(quantization.into))),
        ("conversions out of them", Quantity("converts", len(quantization.out_of))),
        (
            "bytes that these move",
            counted("bytes", quantization.convert_bytes, Unit.BYTES, exact=exact),
        ),
        (
            "of these, not inside a product",
            counted("bytes", quantization.wasted_bytes, Unit.BYTES, exact=exact),
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
    rate = quantization.flops_per_byte
    if rate is not None:
        known = exact and flops.basis is Basis.EXACT
        rows.append(
            ("FLOPs for each byte of conversions", counted("FLOPs per byte", rate, exact=known))
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
