"""Arguments of the program that are converted more often than once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.ir import Instruction, Module
from hloscope.ir.dtypes import BITS, is_floating
from hloscope.passes.converts import Convert, Converts
from hloscope.passes.origins import Origins
from hloscope.pipeline.analyses import analysis

__all__ = ["ParameterCast", "ParameterCasts", "find_parameter_casts"]


@dataclass(frozen=True, slots=True)
class ParameterCast:
    """All conversions of one entry parameter to one narrower type.

    Attributes:
        parameter: The parameter of the entry computation.
        result: The type that it is converted to.
        converts: The conversions, in the order of the module.
        elements: Elements that the parameter has.
        converted: Elements that all runs of all conversions convert; one that was
            gathered or broadcast counts once.
        bytes: What all of them move: see :func:`find_parameter_casts`.
        bytes_once: What converting it once, ahead of all uses, would move.
    """

    parameter: Instruction
    result: str
    converts: Sequence[Convert]
    elements: int
    converted: int
    bytes: int
    bytes_once: int

    @property
    def times_over(self) -> float:
        """How often the whole parameter is converted; 1 for layers sliced one by one."""
        return self.converted / self.elements if self.elements else 0.0

    @property
    def wasted_bytes(self) -> int:
        """Bytes that converting it once would save, 0 where it would not."""
        return max(0, self.bytes - self.bytes_once)

    @property
    def in_loop(self) -> bool:
        """Whether a loop repeats one of the conversions."""
        return any(convert.times.nominal > 1 for convert in self.converts)


@dataclass(frozen=True, slots=True)
class ParameterCasts:
    """The entry parameters that are converted to a narrower type, by parameter and type."""

    rows: Sequence[ParameterCast]


@analysis
def find_parameter_casts(module: Module, converts: Converts, origins: Origins) -> ParameterCasts:
    """Group conversions of the entry's floating-point parameters.

    A use that converts inside its own launch reads the wide parameter; one whose
    conversion is written to memory first reads it wide, writes it narrow, and
    reads that again. Converting once is one such launch, and each use reads the
    narrow array: with ``k`` uses of ``n`` elements that is
    ``n (wide + narrow + k narrow)`` bytes against ``k n wide`` for the first
    kind, which is less from four uses on where narrow is half of wide. A launch
    that also slices or transposes would still do that, in the narrow type.
    """
    groups: dict[tuple[Instruction, str], list[Convert]] = {}
    for convert in converts.rows:
        if not _narrows(convert) or not convert.asked_for:
            continue
        origin = origins.of(convert.instruction.operands[0])
        if origin.opcode == "parameter" and origin.computation is module.entry:
            groups.setdefault((origin, convert.result), []).append(convert)
    return ParameterCasts([_row(*key, group) for key, group in groups.items()])


def _narrows(convert: Convert) -> bool:
    source, result = convert.source, convert.result
    return is_floating(source) and is_floating(result) and BITS[result] < BITS[source]


def _row(parameter: Instruction, result: str, converts: Sequence[Convert]) -> ParameterCast:
    elements = _elements(parameter, converts)
    moved = uses = converted = 0
    for convert in converts:
        wide = convert.instruction.operands[0].shape.bytes
        narrow = convert.instruction.shape.bytes
        runs = convert.times.nominal
        again = 2 * narrow if convert.written else 0
        uses += (narrow if convert.alone else narrow + again) * runs
        moved += (wide + again) * runs
        converted += min(convert.elements, elements) * runs
    once = elements * (BITS[converts[0].source] + BITS[result]) // 8
    return ParameterCast(parameter, result, converts, elements, converted, moved, once + uses)


def _elements(parameter: Instruction, converts: Sequence[Convert]) -> int:
    """Of a tuple parameter the element's size is known from its conversions only."""
    if parameter.shape.is_array:
        return parameter.shape.num_elements
    return max(convert.elements for convert in converts)
