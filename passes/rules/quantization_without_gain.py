"""HS406."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.chips import Chip, ChipKind
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.quantization import Quantization
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["quantization_without_gain"]

_ONCE = "each branch taken, loops of unknown length run once"


@rule("HS406", "quantization-without-gain", Category.DTYPE_CHURN)
def quantization_without_gain(
    quantization: Quantization,
    ledger: FlopLedger,
    traffic: Traffic,
    limits: Limits,
    chip: Chip | None = None,
) -> Iterator[Finding]:
    """Finds programs whose conversions to and from eight bits gain neither time nor memory.

    What it does:
        Sums what conversions between types of at most eight bits and wider
        floating point move through memory, beside the products that multiply in
        such types. It is found where conversions move ``traffic_share`` (1%) of
        the program's bytes or more, and either no product multiplies in eight
        bits, or those that do have fewer than ``quantized_flops_per_byte`` (500)
        FLOPs for each byte of conversions; and whatever they move where the chip
        lacks the unit for all of the products, and no argument is kept in eight
        bits. Weights and caches that are kept in
        eight bits and widened inside the launch that uses them up save memory
        traffic and are left alone, and so are values that devices exchange in
        eight bits, state that the program hands back in them, and programs
        without products. Where the program multiplies quantized operands and
        XLA widens them because the device has no unit for them, the finding says
        so; on a CPU, which nobody quantizes for, it is a note. XLA:TPU leaves such
        a type on the product and widens it inside: where the target is a TPU without
        that unit, as for float8 up to v6e, that is no product in eight bits. Bytes
        (uint8) are taken for pixels, not for numbers that were quantized.

    Why it costs:
        Eight-bit products run at twice the rate of bfloat16 ones. On an H100 a
        FLOP is then 0.5 femtoseconds cheaper, and a byte of traffic costs 0.3
        picoseconds: it takes about 590 FLOPs to pay for one byte, on a TPU v5e
        about 480, on a v6e about 1100. A conversion that XLA could not join with
        the product (another scale, another layout, no such unit) leaves the
        product in bfloat16 and adds its own traffic.

    Example:
            q = (w / scale).astype(jnp.float8_e4m3fn)
            y = x @ (q.astype(jnp.bfloat16) * scale)     # multiplied in bfloat16

    Use instead:
        Multiply the quantized operands and scale the result:

            y = jnp.dot(xq, q, preferred_element_type=jnp.float32) * (x_scale * scale)

        and look with ``hloscope dtypes`` whether the product runs in eight bits;
        ``jax.nn.scaled_matmul`` names the scales to the compiler.
    """
    total = traffic.total()
    moved = quantization.wasted_bytes
    converts = (*quantization.into, *quantization.out_of)
    if not ledger.rows or not total or not converts:
        return
    if moved < max(limits.traffic_share * total, 1) and not _is_for_another_chip(quantization):
        return
    rate = quantization.flops / max(moved, 1)
    if rate >= limits.quantized_flops_per_byte:
        return
    share = moved / total
    known = all(convert.times.exact is not None for convert in converts)
    basis, model = (Basis.EXACT, None) if known else (Basis.MODELLED, _ONCE)
    cost = Quantity("bytes of conversions", moved, Unit.BYTES, basis, model)
    first = max(converts, key=lambda convert: convert.nominal_bytes)
    flops = ledger.total.nominal
    gained = quantization.flops / flops if flops else 0.0
    notes = [f"largest: {first.source} to {first.result}, {first.instruction.name}"]
    if quantization.widened:
        notes.append(
            f"{plural(len(quantization.widened), 'product')} of quantized operands after widening"
        )
    severity = limits.severity(share)
    if quantization.widened_by_xla:
        notes.append("the program multiplies quantized operands; XLA widened them for this device")
        if chip is not None and chip.kind is ChipKind.CPU:
            severity = Severity.NOTE
    if quantization.flops:
        message = "conversions to and from eight bits outweigh the products in eight bits"
    else:
        message = "values are quantized, and no product multiplies in eight bits"
    yield Finding(
        code="HS406",
        name="quantization-without-gain",
        category=Category.DTYPE_CHURN,
        severity=severity,
        message=message,
        site=instruction_site(first.instruction),
        evidence=(
            cost,
            Quantity("share of memory traffic", share, Unit.SHARE, basis, model),
            Quantity("conversions", len(converts)),
            Quantity("FLOPs in eight bits", quantization.flops, Unit.FLOPS, basis, model),
            Quantity("share of product FLOPs", gained, Unit.SHARE, basis, model),
            *((Quantity("FLOPs per byte", rate, Unit.COUNT, basis, model),) if moved else ()),
        ),
        cost=cost,
        fix=_fix(quantization, chip),
        notes=tuple(notes),
    )


def _is_for_another_chip(quantization: Quantization) -> bool:
    """Whether all that is quantized is for products that this chip has no unit for."""
    return bool(
        quantization.without_unit and not quantization.products and not quantization.stored_bytes
    )


def _fix(quantization: Quantization, chip: Chip | None) -> str:
    if quantization.flops and not quantization.widened:
        return (
            "Quantize only products of more FLOPs for each byte that is converted for them: more "
            "rows, wider layers. Leave the others in bfloat16."
        )
    if not quantization.widened_by_xla:
        return (
            "Multiply the quantized operands themselves and scale the result, or stay in bfloat16."
        )
    types = quantization.widened_types
    if chip is not None and types and types <= set(chip.peaks):
        return (
            f"{chip.name} multiplies {' and '.join(sorted(types))} itself: see whether an XLA "
            "option keeps it from that, as xla_gpu_enable_triton_gemm=false does."
        )
    return (
        "Compile for the chip that it will run on; where that one has no such unit either, stay "
        "in bfloat16."
    )
