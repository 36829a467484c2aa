"""The table of pointers that each tuple takes: to its elements, one after the other.

Sizes on TPUs are those in libtpu's buffer assignments (libtpu 0.0.42): multiples
of 512 bytes on v4 and v5e, of 32 on v5p and v6e.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.chips import Chip
from hloscope.ir import Instruction, Shape

__all__ = ["made_tuples", "table_bytes"]

_POINTER = 8
_TPU_POINTER = 4
_TPU_UNIT = 512
_TPU_UNITS = {"v5p": 32, "v6e": 32}
_NAMES = frozenset(
    """
    after-all bitcast call conditional domain get-tuple-element opt-barrier parameter tuple while
    """.split()  # noqa: SIM905
)


def table_bytes(elements: int, *, tpu: bool, chip: Chip | None) -> int:
    """Bytes of the table of a tuple of so many elements."""
    if not tpu:
        return _POINTER * elements
    unit = _TPU_UNITS.get(chip.name, _TPU_UNIT) if chip is not None else _TPU_UNIT
    return -(-_TPU_POINTER * elements // unit) * unit


def made_tuples(instruction: Instruction) -> Iterator[int]:
    """The numbers of elements of the tuples that an instruction makes; names make none."""
    opcode = instruction.opcode
    if opcode not in _NAMES and not opcode.endswith(("-done", "-update")):
        yield from _tuples(instruction.shape)


def _tuples(shape: Shape) -> Iterator[int]:
    if shape.is_tuple:
        yield len(shape.elements)
        for element in shape.elements:
            yield from _tuples(element)
