"""HS505."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.ir import Instruction
from hloscope.passes.duplicate_products import DuplicateProduct, DuplicateProducts
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.step_parts import StepPart, part_of
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["duplicate_product"]

_MODEL = "each branch taken, loops of unknown length run once"
_SHOWN = 4


@rule("HS505", "duplicate-product", Category.REDUNDANT_WORK)
def duplicate_product(
    duplicates: DuplicateProducts, ledger: FlopLedger, limits: Limits
) -> Iterator[Finding]:
    """Finds products that one step computes more than once from the same operands.

    What it does:
        Compares products by what their operands are made of: the same operations
        with the same attributes on the same values, seen through copies, barriers,
        fusions, transpositions and conversions that lose nothing. The product of
        two matrices counts as that of their transpositions in the other order.
        Compared is what one run of the program, or of a loop's body, computes.
        What a checkpoint or XLA computes again on purpose is left out. A group is
        listed where what goes beyond the first comes to ``product_flops_share``
        (1%) of the program's product FLOPs or more.

    Why it costs:
        XLA merges operations that are written the same. It does not see that
        ``a @ b.T`` and ``b @ a.T`` hold the same numbers, nor through a barrier:
        the device computes both.

    Example:
            per_image = image @ text.T
            per_text = text @ image.T                # the same, transposed

    Use instead:
        Compute it once; the transposition costs little or nothing:

            per_image = image @ text.T
            per_text = per_image.T
    """
    total = ledger.total.nominal
    for one in duplicates.rows:
        if total and one.wasted >= limits.product_flops_share * total:
            yield _finding(one, one.wasted / total, limits)


def _finding(one: DuplicateProduct, share: float, limits: Limits) -> Finding:
    group = one.rows
    known = all(row.times.exact is not None and row.count.basis is Basis.EXACT for row in group)
    basis, model = (Basis.EXACT, None) if known else (Basis.MODELLED, _MODEL)
    cost = Quantity("FLOPs beyond the first", one.wasted, Unit.FLOPS, basis, model)
    first, *again = (row.instruction for row in group)
    notes = [f"also {_place(other)}" for other in again[:_SHOWN]]
    if not again:
        notes.append(
            "it multiplies a matrix that joins the same values several times; XLA makes such a "
            "product of several that share an operand"
        )
    if len(again) > _SHOWN:
        notes.append(f"and {len(again) - _SHOWN} more")
    if group[0].chain:
        notes.append(f"reached through {group[0].chain}")
    parts = {part_of(row.instruction) for row in group}
    if {StepPart.FORWARD, StepPart.BACKWARD} <= parts:
        notes.append(
            "one in the forward and one in the backward pass: what is kept in between takes "
            "memory for its result"
        )
    return Finding(
        code="HS505",
        name="duplicate-product",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(share),
        message=f"one product is computed {one.times} times from the same operands",
        site=instruction_site(first),
        evidence=(
            cost,
            Quantity("share of product FLOPs", share, Unit.SHARE, basis, model),
            Quantity("times computed", one.times),
        ),
        cost=cost,
        fix="Compute it once and use the result, transposed where need be.",
        notes=tuple(notes),
    )


def _place(instruction: Instruction) -> str:
    location = instruction.location
    if location is None:
        return instruction.name
    return f"at {location.file}:{location.line} ({instruction.name})"
