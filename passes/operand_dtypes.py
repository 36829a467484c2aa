"""In which type a product's operands were written, before XLA widened them.

A CPU has no bfloat16 units, so XLA converts both sides of a bfloat16 product
to float32 first. Read from the product alone, every bfloat16 model would look
like a float32 one there. The same goes for pieces that XLA splits off: what
counts is what the operands hold, not the type of the partial sums.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.ir.dtypes import BITS, is_floating
from hloscope.passes.converts import is_asked_for
from hloscope.passes.flops.call_config import nested, section
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.origins import Origins
from hloscope.pipeline.analyses import analysis

__all__ = ["OperandDtypes", "find_operand_dtypes"]

_NARROW_ALGORITHM = re.compile(r"(?:alg_)?dot_(bf16|f16)_\1_(?:bf16|f16|f32)")

_WIDE = frozenset({"f32", "f64"})


@dataclass(frozen=True, slots=True)
class OperandDtypes:
    """Element types of a product's operands as the program had them.

    Attributes:
        by_product: For each row of the ledger, the types of its two sides.
    """

    by_product: Mapping[Instruction, tuple[str, ...]]


@analysis
def find_operand_dtypes(origins: Origins, ledger: FlopLedger) -> OperandDtypes:
    """Look through the conversions that XLA put in front of each product.

    A conversion that the program asked for carries JAX's name for it,
    ``convert_element_type``, and is taken at its word. A product whose
    algorithm, or whose other operand, makes the matrix unit round to a narrow
    type is one in that type.
    """
    tracer = _Tracer(origins)
    return OperandDtypes({row.instruction: _sides(row, tracer) for row in ledger.rows})


def _sides(row: FlopRow, tracer: _Tracer) -> tuple[str, ...]:
    written = row.count.dtypes
    if row.count.kind is Kind.KERNEL or not _WIDE.intersection(written):
        return written
    narrow = _rounded_to(row.instruction) or _met_by(row)
    if narrow is not None:
        return (narrow,) * len(written)
    return tuple(
        tracer.dtype(operand) if dtype in _WIDE else dtype
        for operand, dtype in zip(row.instruction.operands, written, strict=False)
    )


def _rounded_to(product: Instruction) -> str | None:
    """The narrow type that the product's algorithm rounds both sides to, if it does.

    Algorithms that add up several narrow passes (``_x3``) stand in for float32.
    """
    text = product.attributes.get("algorithm", "")
    if product.opcode.startswith("custom-call"):
        config = section(product.backend_config, "gemm_backend_config")
        text = str(nested(config, "precision_config").get("algorithm", ""))
    match = _NARROW_ALGORITHM.fullmatch(text.lower())
    return match[1] if match else None


def _met_by(row: FlopRow) -> str | None:
    """The narrow type that a float32 operand meets in the instruction itself.

    Where the precision asked for allows it, TPU compilers convert one side of
    a float32 product to bfloat16 and let the matrix unit round the other.
    """
    if "high" in row.instruction.attributes.get("operand_precision", ""):
        return None
    return next((d for d in row.count.dtypes if is_floating(d) and BITS[d] <= 16), None)


class _Tracer:
    """Finds the type in which a value was written."""

    def __init__(self, origins: Origins) -> None:
        self.origins = origins

    def dtype(self, operand: Instruction) -> str:
        """The narrow type that XLA widened an operand from, else its own."""
        wide = operand.shape.dtype
        origin = self.origins.of(operand)
        if origin.opcode != "convert" or not origin.operands or is_asked_for(origin):
            return wide
        narrow = origin.operands[0].shape.dtype
        if not is_floating(narrow) or BITS[narrow] >= BITS[wide]:
            return wide
        return narrow
