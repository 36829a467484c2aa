"""Values that are widened because something wider meets them on the same line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from hloscope.ir import Instruction
from hloscope.ir.dtypes import BITS, is_floating
from hloscope.ir.jaxpr_promotions import JaxprPromotion, JaxprPromotions
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
    """The widening conversions of one line whose result meets a wider value there.

    Attributes:
        file: Python file; empty where it is not known.
        line: Line in it, from 1; 0 where it is not known.
        source: The narrow type.
        result: The wide type.
        operation: In what they meet: a primitive of the jaxpr's, else an opcode.
        partner: What it meets, in words.
        by_number: Whether that is a single number and no array.
        largest: Elements of the largest value that is widened there.
        elements: Elements widened per execution, each unknown loop run once.
        exact: Whether it is known how often each conversion runs.
        converts: Those that the optimized program still has on that line.
    """

    file: str
    line: int
    source: str
    result: str
    operation: str
    partner: str
    by_number: bool
    largest: int
    elements: int = 0
    exact: bool = True
    converts: list[Convert] = field(default_factory=list)

    @property
    def nominal_bytes(self) -> int:
        """Bytes that these conversions move through memory themselves."""
        return sum(convert.nominal_bytes for convert in self.converts)


@dataclass(frozen=True, slots=True)
class Promotions:
    """Promotions by line, those of most elements first.

    Attributes:
        rows: One for each line, pair of types and kind of partner.
        from_jaxpr: Whether the jaxpr told them. Else they are read from the
            optimized program, which shows numbers only and cannot tell a
            promotion from a cast that the program asks for on the same line.
    """

    rows: Sequence[Promotion]
    from_jaxpr: bool


@analysis
def find_promotions(
    converts: Converts, origins: Origins, jaxpr: JaxprPromotions | None = None
) -> Promotions:
    """The widenings that JAX's type promotion made, with what is left of them.

    A Python number is weakly typed and leaves an array's type alone; a NumPy
    scalar, ``jnp.float32(x)``, a strongly typed argument or array does not. A
    capture reads that off the jaxpr. Of a bare module it is guessed: JAX puts
    the conversion on the line of the arithmetic, so a conversion and its user
    on one line, with a scalar of the wide type on the other side, is taken for
    one.
    """
    lines: dict[tuple[str, int, str, str], list[Convert]] = {}
    for convert in converts.rows:
        location = convert.instruction.location
        if convert.asked_for and location is not None:
            key = (location.file, location.line, convert.source, convert.result)
            lines.setdefault(key, []).append(convert)
    if jaxpr is None:
        return Promotions(_guessed(lines, origins), from_jaxpr=False)
    rows = []
    for row in jaxpr.rows:
        left = lines.get((row.file, row.line, row.source, row.result), [])
        rows.append(
            Promotion(
                row.file,
                row.line,
                row.source,
                row.result,
                row.operation,
                _partner(row),
                row.partner == "number",
                prod(row.dimensions),
                row.elements,
                row.exact,
                left,
            )
        )
    return Promotions(rows, from_jaxpr=True)


def _partner(row: JaxprPromotion) -> str:
    kind = f"{'weak ' if row.partner_weak else ''}{row.partner}"
    text = row.partner_text
    if not text or text == "closed over" or not text[0].isalpha():
        return f"{kind} {text}".strip()
    return f"{kind} from {text}"


def _guessed(
    lines: dict[tuple[str, int, str, str], list[Convert]], origins: Origins
) -> Sequence[Promotion]:
    rows = []
    for (file, line, source, result), converts in lines.items():
        if not (is_floating(source) and is_floating(result) and BITS[result] > BITS[source]):
            continue
        found = [(c, met) for c in converts if (met := _met(c.instruction, origins)) is not None]
        if found:
            user, scalar = found[0][1]
            left = [convert for convert, _ in found]
            rows.append(
                Promotion(
                    file,
                    line,
                    source,
                    result,
                    user.opcode,
                    _named(scalar),
                    True,
                    max(convert.elements for convert in left),
                    sum(convert.elements * convert.times.nominal for convert in left),
                    all(convert.times.exact is not None for convert in left),
                    left,
                )
            )
    return sorted(rows, key=lambda row: -row.elements)


def _named(scalar: Instruction) -> str:
    if scalar.opcode == "constant":
        return f"number {scalar.payload}".strip()
    return f"number {scalar.op_name or scalar.name}"


def _met(convert: Instruction, origins: Origins) -> tuple[Instruction, Instruction] | None:
    """An operation on the conversion's own line, and the wide scalar on its other side."""
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
                return user, origin
    return None
