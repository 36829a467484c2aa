"""At what rate a chip can multiply what a product multiplies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hloscope.chips import Chip, ChipKind
from hloscope.ir import Instruction
from hloscope.passes.flops.call_config import nested, section
from hloscope.passes.flops.counts import Count, Kind

__all__ = ["Peak", "is_widened", "peak_of"]


@dataclass(frozen=True, slots=True)
class Peak:
    """The rate that bounds a product.

    Attributes:
        rate: FLOP/s (operations a second for integers), passes taken into account.
        unit: Which of the chip's peaks it comes from, with the number of passes:
            ``bf16``, ``tf32``, ``bf16 x6``.
    """

    rate: float
    unit: str


# dot_bf16_bf16_f32_x3: three products of bfloat16 stand in for one of float32.
_ALGORITHM = re.compile(r"(?:alg_)?dot_([a-z0-9]+)_[a-z0-9]+_[a-z0-9]+(?:_x(\d+))?")
# What XLA:TPU does for a float32 product, by the precision that JAX was asked for.
_TPU_PASSES = {"": 1, "high": 3, "highest": 6}
_REAL = {"c64": "f32", "c128": "f64", "u8": "s8"}


def peak_of(instruction: Instruction, count: Count, chip: Chip) -> Peak | None:
    """The chip's peak for a product; ``None`` where no figure is published.

    A float32 product runs at what XLA uses for it: on a GPU TensorFloat-32
    unless the precision asked for is ``highest``; on a TPU one pass of bfloat16,
    three for ``high``, six for ``highest``. An algorithm that is spelled out counts
    for itself. Sides of two types go at the slower rate; a kernel whose author
    names several types at the fastest, since nobody says which of them it multiplies.
    """
    rates = [
        peak
        for dtype in dict.fromkeys(count.dtypes)
        if (peak := _of_type(dtype, instruction, chip)) is not None
    ]
    if not rates or (count.kind is not Kind.KERNEL and len(rates) < len(set(count.dtypes))):
        return None
    choose = max if count.kind is Kind.KERNEL else min
    return choose(rates, key=lambda peak: peak.rate)


def is_widened(dtype: str, chip: Chip) -> bool:
    """Whether a chip's matrix unit takes a narrow floating-point type in bfloat16 only.

    XLA:TPU leaves the type on the product and widens its operands inside it: by the
    compiler's own estimate 4096 x 4096 x 4096 takes 1.08 M cycles of a v5e in bfloat16,
    1.11 M in float8 and 0.54 M in int8. XLA:GPU writes the widening into the module.
    """
    return chip.kind is ChipKind.TPU and dtype not in chip.peaks and dtype[:2] in ("f1", "f8")


def _of_type(dtype: str, instruction: Instruction, chip: Chip) -> Peak | None:
    dtype = _REAL.get(dtype, dtype)
    passes = 1
    algorithm, precision = _asked_for(instruction)
    spelled = _ALGORITHM.fullmatch(algorithm)
    if dtype == "f32" and spelled:
        dtype, passes = spelled[1], int(spelled[2] or 1)
    elif dtype == "f32" and chip.kind is ChipKind.TPU:
        dtype, passes = "bf16", _TPU_PASSES.get(precision, 1)
    elif dtype == "f32" and precision != "highest" and "tf32" in chip.peaks:
        dtype = "tf32"
    if is_widened(dtype, chip):
        dtype = "bf16"
    rate = chip.peaks.get(dtype)
    if rate is None:
        return None
    return Peak(rate / passes, dtype if passes == 1 else f"{dtype} x{passes}")


def _asked_for(instruction: Instruction) -> tuple[str, str]:
    """The algorithm and the highest precision that a product names, in lower case."""
    algorithm = instruction.attributes.get("algorithm", "")
    precision = instruction.attributes.get("operand_precision", "")
    if instruction.opcode == "custom-call":
        config = section(instruction.backend_config, "gemm_backend_config")
        config = nested(config, "precision_config")
        algorithm = algorithm or str(config.get("algorithm", ""))
        precision = precision or str(config.get("operand_precision", ""))
    precision = precision.lower()
    level = "highest" if "highest" in precision else "high" if "high" in precision else ""
    return algorithm.lower(), level
