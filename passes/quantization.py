"""What a program quantizes, and whether anything is gained by it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.ir.dtypes import BITS, is_floating, is_integer
from hloscope.passes.converts import Convert, Converts
from hloscope.passes.dtype_products import DtypeProducts, ProductDtypes
from hloscope.passes.execution import Execution
from hloscope.passes.origins import Origins, moves
from hloscope.pipeline.analyses import analysis

__all__ = ["Quantization", "find_quantization", "is_quantized"]

_MAX_STEPS = 60


@dataclass(frozen=True, slots=True)
class Quantization:
    """Conversions to and from types of at most eight bits, and the products in them.

    Attributes:
        into: Conversions of a wider floating-point array to such a type.
        out_of: Conversions back, or to the type of the arithmetic.
        products: Products that multiply two such operands.
        widened: Products with an operand that was widened from such a type first:
            the memory is saved, the matrix unit is not used.
        stored_bytes: Bytes of entry parameters in such a type that products use:
            half of what they would be in sixteen bits.
        wasted_bytes: Bytes that the conversions move through memory per
            execution, without those that widen an operand inside the launch that
            multiplies it, which read fewer bytes than the wide operand would have.
    """

    into: Sequence[Convert]
    out_of: Sequence[Convert]
    products: Sequence[ProductDtypes]
    widened: Sequence[ProductDtypes]
    stored_bytes: int
    wasted_bytes: int

    @property
    def used(self) -> bool:
        """Whether the program holds anything quantized."""
        return bool(self.into or self.out_of or self.products)

    @property
    def flops(self) -> int:
        """FLOPs of the quantized products, each unknown loop run once."""
        return sum(product.row.nominal for product in self.products)

    @property
    def convert_bytes(self) -> int:
        """Bytes that the conversions move through memory, each unknown loop run once."""
        return sum(convert.nominal_bytes for convert in (*self.into, *self.out_of))

    @property
    def flops_per_byte(self) -> float | None:
        """Quantized FLOPs for each byte of conversions; ``None`` where none move any."""
        return self.flops / self.convert_bytes if self.convert_bytes else None


def is_quantized(dtype: str) -> bool:
    """Whether a type is a number of at most eight bits that stands for a wider one.

    ``u8`` is left out: bytes are pixels and text far more often than weights.
    """
    return (is_floating(dtype) or is_integer(dtype)) and BITS[dtype] <= 8 and dtype != "u8"


@analysis
def find_quantization(
    converts: Converts, products: DtypeProducts, origins: Origins, execution: Execution
) -> Quantization:
    """Set conversions around quantized values beside the products that use them.

    Single elements (scales, counters) are left out, and so are conversions between
    integers.
    """
    into = [c for c in converts.rows if _is_between(c.source, c.result, c)]
    out_of = [c for c in converts.rows if _is_between(c.result, c.source, c)]
    narrow = [p for p in products.rows if p.quantized]
    widened = [p for p in products.rows if not p.quantized and _holds_widened(p, origins)]
    inside = _inside_products(widened, origins, execution)
    wasted = sum(c.nominal_bytes for c in (*into, *out_of) if c.instruction not in inside)
    stored = _stored(narrow, widened, origins)
    return Quantization(into, out_of, narrow, widened, stored, wasted)


def _inside_products(
    widened: Sequence[ProductDtypes], origins: Origins, execution: Execution
) -> Set[Instruction]:
    """Conversions that widen an operand in the launch that multiplies it."""
    found = set()
    for product in widened:
        launch = execution.launch_of(product.row.instruction)
        for operand in product.row.instruction.operands[:2]:
            source = _quantized_source(operand, origins)
            if source is not None and execution.launch_of(source) is launch:
                found.add(source)
    return found


def _is_between(wide: str, narrow: str, convert: Convert) -> bool:
    return (
        convert.elements > 1
        and is_quantized(narrow)
        and is_floating(wide)
        and BITS[wide] > BITS[narrow]
    )


def _holds_widened(product: ProductDtypes, origins: Origins) -> bool:
    return any(
        _quantized_source(operand, origins) is not None
        for operand in product.row.instruction.operands[:2]
    )


_SCALINGS = frozenset({"multiply", "divide", "subtract", "add"})


def _quantized_source(operand: Instruction, origins: Origins) -> Instruction | None:
    """The conversion from a quantized type that an operand is made of, through its scaling."""
    value = origins.of(operand)
    for _ in range(_MAX_STEPS):
        if value.opcode == "convert" and value.operands:
            source = value.operands[0]
            if is_quantized(source.shape.dtype) and is_floating(value.shape.dtype):
                return value
            value = origins.of(source)
        elif value.opcode in _SCALINGS and len(value.operands) == 2:
            value = origins.of(_larger(value.operands))
        else:
            return None
    return None


def _larger(operands: Sequence[Instruction]) -> Instruction:
    """The side that is scaled: not a scale that is broadcast to its size."""
    first, second = operands
    return second if first.opcode == "broadcast" and not moves(second) else first


def _stored(
    narrow: Sequence[ProductDtypes], widened: Sequence[ProductDtypes], origins: Origins
) -> int:
    """Bytes of the entry's quantized parameters that products use."""
    found: dict[Instruction, None] = {}
    for product in (*narrow, *widened):
        for operand in product.row.instruction.operands[:2]:
            source = _quantized_source(operand, origins)
            value = origins.of(source.operands[0] if source is not None else operand)
            shape = value.shape
            if value.opcode == "parameter" and shape.is_array and is_quantized(shape.dtype):
                found[value] = None
    return sum(value.shape.bytes for value in found)
