"""What a program quantizes, and whether anything is gained by it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from hloscope.chips import Chip
from hloscope.ir import Instruction
from hloscope.ir.dtypes import BITS, is_floating, is_integer
from hloscope.passes.converts import Convert, Converts, is_asked_for
from hloscope.passes.dtype_products import DtypeProducts, ProductDtypes
from hloscope.passes.origins import Origins, moves
from hloscope.passes.peaks import is_widened
from hloscope.pipeline.analyses import analysis

__all__ = ["Quantization", "find_quantization", "is_quantized"]

_MAX_STEPS = 60


@dataclass(frozen=True, slots=True)
class Quantization:
    """Conversions to and from types of at most eight bits, and the products in them.

    Attributes:
        into: Conversions of a wider floating-point array to such a type.
        out_of: Conversions back, or to the type of the arithmetic.
        products: Products that multiply two such operands, as far as is known: where
            the chip is, without those that it has no unit for.
        widened: Products with an operand that was widened from such a type first, or
            that the chip widens on the way in: the memory is saved, the matrix unit
            is not used.
        stored_bytes: Bytes of entry parameters in such a type that products use:
            half of what they would be in sixteen bits.
        wasted_bytes: Bytes that the conversions move through memory per
            execution, without those whose result is used up in the launch that
            widens it, which reads fewer bytes than the wide operand would have,
            those around an exchange, and those of what the program hands back.
        widened_types: Those of ``widened`` before they were widened.
        without_unit: Those among them that stand on products, for the chip to widen
            inside: it has no unit for them.
        widened_by_xla: Whether XLA widened every such operand, and the program
            none: it asked for products that the device has no unit for.
    """

    into: Sequence[Convert]
    out_of: Sequence[Convert]
    products: Sequence[ProductDtypes]
    widened: Sequence[ProductDtypes]
    stored_bytes: int
    wasted_bytes: int
    widened_types: Set[str]
    without_unit: Set[str]
    widened_by_xla: bool

    @property
    def used(self) -> bool:
        """Whether the program holds anything quantized."""
        return bool(self.into or self.out_of or self.products or self.without_unit)

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
    converts: Converts, products: DtypeProducts, origins: Origins, chip: Chip | None
) -> Quantization:
    """Set conversions around quantized values beside the products that use them.

    Single elements (scales, counters) are left out, and so are conversions between
    integers.
    """
    into = [c for c in converts.rows if _is_between(c.source, c.result, c)]
    out_of = [c for c in converts.rows if _is_between(c.result, c.source, c)]
    narrow = [p for p in products.rows if p.quantized and not _without_unit(p, chip)]
    inside = [p for p in products.rows if p.quantized and _without_unit(p, chip)]
    ahead = [p for p in products.rows if not p.quantized and _sources(p, origins)]
    widened = ahead + inside
    lacking = {dtype for product in inside for dtype in _without_unit(product, chip)}
    sent = _exchanged(out_of, origins)
    wasted = sum(_wasted(c) for c in out_of if c.instruction not in sent)
    wasted += sum(
        c.nominal_bytes
        for c in into
        if c.instruction not in sent and not _leaves_program(c.instruction)
    )
    stored = _stored(narrow, widened, origins)
    sources = [source for product in ahead for source in _sources(product, origins)]
    by_xla = bool(widened) and not any(is_asked_for(source) for source in sources)
    types = lacking | {source.operands[0].shape.dtype for source in sources}
    return Quantization(into, out_of, narrow, widened, stored, wasted, types, lacking, by_xla)


def _wasted(widening: Convert) -> int:
    """Bytes that widening moves per execution, where the wide array leaves its launch.

    What is used up in the launch that widens it, by a product or a sum, is read
    in its narrow type: that is the gain, and no cost.
    """
    if widening.written:
        return widening.nominal_bytes
    left = _leaves(widening)
    size = left.shape.bytes if left is not None and left.shape.is_array else 0
    return (widening.read + size) * widening.times.nominal if left is not None else 0


def _exchanged(out_of: Sequence[Convert], origins: Origins) -> Set[Instruction]:
    """Conversions on both sides of an exchange: fewer bytes on the wire are their gain."""
    found: set[Instruction] = set()
    for widening in out_of:
        value = widening.instruction.operands[0]
        origin = origins.of(value)
        if origins.exchanged(value):
            found.update((widening.instruction, origin))
        elif origin.opcode.startswith(_SUMS):
            found.add(widening.instruction)
            found.update(origins.of(operand) for operand in origin.operands)
    return found


def _leaves_program(value: Instruction) -> bool:
    """Whether the program hands a value back, as it does with state kept in eight bits."""
    pending, seen = [value], {value}
    while pending and len(seen) < _MAX_STEPS:
        current = pending.pop()
        onwards = [u for u in current.users if moves(u) or u.opcode in _TUPLES]
        if current.is_root:
            if current.computation is current.computation.module.entry:
                return True
            onwards += [c for c in current.computation.callers if c.opcode in ("fusion", "call")]
        pending += [one for one in onwards if one not in seen]
        seen.update(onwards)
    return False


def _leaves(widening: Convert) -> Instruction | None:
    """The value as which a widened array, at most scaled and moved, leaves its launch."""
    pending, seen = [widening.instruction], {widening.instruction}
    while pending and len(seen) < _MAX_STEPS:
        value = pending.pop()
        if value is widening.launch:
            return None
        onwards = [user for user in value.users if _keeps(user, value)]
        if value.is_root:
            callers = value.computation.callers
            if widening.launch in callers:
                return value
            onwards += callers
        pending += [one for one in onwards if one not in seen]
        seen.update(onwards)
    return None


def _keeps(user: Instruction, value: Instruction) -> bool:
    """Whether a user's result is the array again: scaled by something smaller, converted, moved."""
    if not user.shape.is_array:
        return user.opcode == "tuple"
    if user.shape.num_elements != value.shape.num_elements:
        return False
    if user.opcode in _SCALINGS:
        return all(o is value or _is_spread(o) for o in user.operands)
    return user.opcode == "convert" or moves(user)


def _is_spread(operand: Instruction) -> bool:
    """Whether an operand is a scale or an offset that is broadcast to the array's size."""
    while operand.opcode in ("bitcast", "convert", "reshape") and operand.operands:
        operand = operand.operands[0]
    return operand.opcode == "broadcast"


def _sources(product: ProductDtypes, origins: Origins) -> Sequence[Instruction]:
    operands = product.row.instruction.operands[:2]
    found = (_quantized_source(operand, origins) for operand in operands)
    return [source for source in found if source is not None]


def _is_between(wide: str, narrow: str, convert: Convert) -> bool:
    return (
        convert.elements > 1
        and is_quantized(narrow)
        and is_floating(wide)
        and BITS[wide] > BITS[narrow]
    )


def _without_unit(product: ProductDtypes, chip: Chip | None) -> Set[str]:
    """Types of a product's operands that the chip widens, as far as it is known."""
    if chip is None:
        return frozenset()
    return {dtype for dtype in product.multiplied if is_widened(dtype, chip)}


_SUMS = ("all-reduce", "reduce-scatter")
_TUPLES = ("tuple", "get-tuple-element")
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
