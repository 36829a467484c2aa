"""Values that are widened because something wider meets them on the same line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hloscope.ir import Instruction
from hloscope.ir.dtypes import BITS, is_floating
from hloscope.passes.converts import Convert, Converts
from hloscope.passes.origins import Origins
from hloscope.pipeline.analyses import analysis

__all__ = ["Promotion", "Promotions", "find_promotions"]

_MEETINGS = frozenset(
    """
    add subtract multiply divide maximum minimum power compare select atan2 remainder
    """.split()  # noqa: SIM905
)


@dataclass(slots=True)
class Promotion:
    """The widening conversions of one line whose result meets a wide scalar there.

    Attributes:
        source: The narrow type.
        result: The wide type.
        converts: The conversions.
        scalar: A scalar that they meet: a constant or an argument.
    """

    source: str
    result: str
    converts: list[Convert] = field(default_factory=list)
    scalar: Instruction | None = None

    @property
    def elements(self) -> int:
        """Elements widened per execution, each unknown loop run once."""
        return sum(convert.elements * convert.times.nominal for convert in self.converts)


@dataclass(frozen=True, slots=True)
class Promotions:
    """Promotions by line, as far as the optimized program still shows them."""

    rows: Sequence[Promotion]


@analysis
def find_promotions(converts: Converts, origins: Origins) -> Promotions:
    """Find widenings that a scalar of the wide type explains.

    A Python number is weakly typed and leaves an array's type alone; a NumPy
    scalar, ``jnp.float32(x)`` or a strongly typed argument does not. JAX puts
    the conversion on the line of the arithmetic, so a conversion and its user
    on one line, with a scalar of the wide type on the other side, is a promotion
    or an explicit cast written on that line: the program does not tell which.
    """
    lines: dict[tuple[str, int, str, str], Promotion] = {}
    for convert in converts.rows:
        location = convert.instruction.location
        if not convert.asked_for or location is None or not _widens(convert):
            continue
        scalar = _met(convert.instruction, origins)
        if scalar is None:
            continue
        key = (location.file, location.line, convert.source, convert.result)
        line = lines.setdefault(key, Promotion(convert.source, convert.result, scalar=scalar))
        line.converts.append(convert)
    return Promotions(sorted(lines.values(), key=lambda line: -line.elements))


def _widens(convert: Convert) -> bool:
    source, result = convert.source, convert.result
    return is_floating(source) and is_floating(result) and BITS[result] > BITS[source]


def _met(convert: Instruction, origins: Origins) -> Instruction | None:
    """The wide scalar on the other side of an operation on the conversion's own line."""
    for user in convert.users:
        if user.opcode not in _MEETINGS or user.location != convert.location:
            continue
        for operand in user.operands:
            if operand is convert or operand.shape.dtype != convert.shape.dtype:
                continue
            origin = origins.of(operand)
            if (
                origin.opcode in ("constant", "parameter")
                and origin.shape.is_array
                and origin.shape.num_elements == 1
            ):
                return origin
    return None
