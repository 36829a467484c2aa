"""HS401."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.ir.dtypes import BITS, is_floating
from hloscope.passes.dtype_products import DtypeProducts, ProductDtypes
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.flops.counts import Kind
from hloscope.passes.promotions import Promotions
from hloscope.passes.upstream_promotions import promotions_behind
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["float32_product"]

_WIDE = ("f32", "f64")
_SHOWN = 3
_PRODUCTS = (Kind.MATMUL, Kind.CONVOLUTION, Kind.ATTENTION)  # a matrix unit has narrow ones of


@rule("HS401", "float32-product", Category.DTYPE_CHURN)
def float32_product(
    dtypes: DtypeProducts, promotions: Promotions, limits: Limits
) -> Iterator[Finding]:
    """Finds float32 (or float64) products in a program that multiplies in a narrow type.

    What it does:
        Sums the FLOPs of dots, convolutions and the library calls that stand
        for them by the type of their operands. Where ``mixed_flops_share``
        (a fifth) or more is in bfloat16, float16 or a narrower type, every
        source line with products in float32 or float64 is listed, from
        ``product_flops_share`` (1%) of the program's product FLOPs on. The type
        of the operands counts, not that of the sum, which XLA rightly keeps in
        float32. Conversions that XLA itself puts in front of a product, as it
        does on CPUs, are looked through; those that the program asks for are
        not. How the operands are rounded on the way in is said where an
        algorithm or a precision says so, and lines on which type promotion
        widened a value on the way to the product are named.

    Why it costs:
        Matrix units run narrow types at a multiple of their float32 rate: two
        to sixteen times, by chip, and where float32 is rounded on the way in
        (TF32, or bfloat16 passes on a TPU) the operands still take twice the
        memory traffic. One float32 operand is enough: the other side is
        widened to meet it.

    Example:
            h = block(params, tokens)                    # bfloat16
            logits = h @ params["embedding"].T           # float32 weights: widens h

    Use instead:
        Convert the weights before the product, and what needs float32 after it. The
        matrix unit sums in float32 either way:

            table = params["embedding"].astype(h.dtype)
            logits = jnp.einsum("btd,vd->btv", h, table).astype(jnp.float32)

        ``preferred_element_type=jnp.float32`` would keep the result unrounded, but
        its cotangent is float32 then, and both of the gradient's products are
        float32 again. It suits products that nobody differentiates.
    """
    products = [p for p in dtypes.rows if p.row.count.kind in _PRODUCTS and p.row.nominal]
    total = sum(product.row.nominal for product in products)
    narrow = sum(product.row.nominal for product in products if _is_narrow(product.written))
    if not total or narrow < limits.mixed_flops_share * total:
        return
    lines: dict[object, list[ProductDtypes]] = {}
    for product in products:
        if any(dtype in _WIDE for dtype in product.written):
            lines.setdefault(_origin(product), []).append(product)
    for rows in lines.values():
        share = sum(product.row.nominal for product in rows) / total
        if share >= limits.product_flops_share:
            yield _finding(rows, promotions, share, narrow / total, limits)


def _is_narrow(dtypes: Sequence[str]) -> bool:
    return bool(dtypes) and all(is_floating(d) and BITS[d] <= 16 for d in dtypes)


def _origin(product: ProductDtypes) -> object:
    instruction = product.row.instruction
    location = instruction.location
    if location is not None:
        return location.file, location.line
    return instruction.op_name or instruction


def _finding(
    rows: Sequence[ProductDtypes],
    promotions: Promotions,
    share: float,
    narrow: float,
    limits: Limits,
) -> Finding:
    dearest = max(rows, key=lambda product: product.row.nominal)
    instruction, written = dearest.row.instruction, dearest.written
    operands = " x ".join(
        f"{dtype}{_sizes(operand.shape.dimensions)}"
        for dtype, operand in zip(written, instruction.operands, strict=False)
    )
    flops = _sum(rows)
    wide = "float64" if "f64" in written else "float32"
    many = f"{len(rows)} products" if len(rows) > 1 else "a product"
    notes = [f"largest: {operands}, {instruction.name}"]
    if dearest.row.chain:
        notes.append(f"reached through {dearest.row.chain}")
    roundings = dict.fromkeys(p.rounding for p in rows if "f32" in p.multiplied)
    notes += [_ROUNDINGS.get(kind, f"its algorithm rounds to {kind}") for kind in roundings]
    notes += [
        f"on the way to it {row.source} became {row.result} at {row.file}:{row.line}, "
        f"where it meets {'a' if row.by_number else 'an'} {row.partner}"
        for row in promotions_behind(instruction, promotions)[:_SHOWN]
    ]
    return Finding(
        code="HS401",
        name="float32-product",
        category=Category.DTYPE_CHURN,
        severity=limits.severity(share),
        message=f"{many} in {wide} in a program that multiplies in narrower types",
        site=instruction_site(instruction),
        evidence=(
            flops,
            Quantity("share of product FLOPs", share, Unit.SHARE, flops.basis, flops.model),
            Quantity("share in narrow types", narrow, Unit.SHARE, flops.basis, flops.model),
        ),
        cost=flops,
        fix="Convert both operands to the narrow type, and the result to float32 after the "
        "product where it is needed: the gradients' products are narrow then, too.",
        notes=tuple(notes),
    )


_ROUNDINGS = {
    "": "nothing is said of rounding, so the device's default holds: a GPU may use TF32, "
    "a TPU one pass in bfloat16",
    "full": "the program asks for full float32 precision (HIGHEST or a float32 algorithm)",
    "high": "the program asks for precision HIGH: TF32 on a GPU, bfloat16 x3 on a TPU",
}


def _sum(products: Sequence[ProductDtypes]) -> Quantity:
    """FLOPs of a line; a line in a loop of unknown length is counted for one iteration."""
    rows = [product.row for product in products]
    total = sum(row.nominal for row in rows)
    if all(row.times.exact is not None and row.count.basis is Basis.EXACT for row in rows):
        return Quantity("FLOPs", total, Unit.FLOPS)
    return Quantity(
        "FLOPs",
        total,
        Unit.FLOPS,
        Basis.MODELLED,
        "each branch taken, loops of unknown length run once",
    )


def _sizes(dimensions: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dimensions))}]"
