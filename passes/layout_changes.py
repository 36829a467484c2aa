"""Launches that only lay an array out another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction, Module, Shape
from hloscope.passes.memory_spaces import Space, has_on_chip_memory, space_of
from hloscope.passes.traffic import Traffic, TrafficRow
from hloscope.pipeline.analyses import analysis

__all__ = ["LayoutChange", "LayoutChanges", "find_layout_changes"]

_MOVES = frozenset(
    "bitcast constant copy get-tuple-element parameter reshape transpose tuple".split()  # noqa: SIM905
)


_HANDS_ON = frozenset({"bitcast", "get-tuple-element", "copy-start", "copy-done"})
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """One launch that computes nothing and writes its operand in another order.

    Attributes:
        row: The launch and what it moves.
        named: Of the launch, or what it makes or is used by, the first with a Python line.
        source: The array as it was.
        result: The array as it is written.
        transposed: Whether a name says that the program transposes here. Compilers drop many
            such names, so none says nothing.
    """

    row: TrafficRow
    named: Instruction
    source: Shape
    result: Shape
    transposed: bool

    @property
    def nominal_bytes(self) -> int:
        """Bytes of device memory read and written per execution, unknown loops run once."""
        return (self.row.moved() or 0) * self.row.times.nominal


@dataclass(frozen=True, slots=True)
class LayoutChanges:
    """The changes of layout in a program.

    Attributes:
        rows: Those that move device memory.
    """

    rows: Sequence[LayoutChange]


@analysis
def find_layout_changes(module: Module, traffic: Traffic) -> LayoutChanges:
    """Find copies, transposes and fusions of nothing else; linear in the launches.

    A copy into the same layout (of a loop's or a donated array), one between memories,
    and one that also converts or slices is none.
    """
    on_chip = has_on_chip_memory(module)
    rows = []
    for row in traffic.rows:
        launch = row.instruction
        change = _change(launch)
        if change is None or not row.moved():
            continue
        source, result = change
        spaces = {space_of(source, on_chip=on_chip), space_of(result, on_chip=on_chip)}
        if spaces != {Space.DEVICE}:
            continue
        rows.append(
            LayoutChange(row, _named(launch), source, result, _is_transpose_of_program(launch))
        )
    return LayoutChanges(tuple(rows))


def _change(launch: Instruction) -> tuple[Shape, Shape] | None:
    """The largest array that a launch only lays out anew, before and after."""
    if launch.opcode in ("copy", "transpose") and launch.operands:
        found = [(launch.operands[0].shape, launch.shape)] if _reorders(launch) else []
    elif launch.opcode == "fusion" and launch.called and _only_moves(launch.called[0]):
        found = [
            (value.operands[0].shape, value.shape)
            for value in launch.called[0].instructions
            if value.opcode in ("copy", "transpose") and value.operands and _reorders(value)
        ]
        if found:
            # What lies inside has no memory of its own: the launch's edges do.
            found = [(launch.operands[0].shape, _first_array(launch.shape))]
    else:
        return None
    return max(found, key=lambda pair: pair[1].num_elements, default=None)


def _first_array(shape: Shape) -> Shape:
    return max(shape.leaves(), key=lambda leaf: leaf.num_elements if leaf.is_array else -1)


def _only_moves(computation: Computation) -> bool:
    return all(
        value.opcode in _MOVES and (value.opcode != "constant" or value.shape.num_elements == 1)
        for value in computation.instructions
    )


def _reorders(value: Instruction) -> bool:
    """Whether elements lie in another order afterwards; sizes of one and tiles are no order."""
    source, result = value.operands[0].shape, value.shape
    if not (source.is_array and result.is_array) or source.dtype != result.dtype:
        return False
    before = _order(source)
    if value.opcode == "transpose":
        # Dimension d of the result is dimension permutation[d] of the operand.
        permutation = value.dimensions
        after = [permutation[d] for d in _order(result) if d < len(permutation)]
        return before != after
    if source.dimensions != result.dimensions:
        return False
    return before != _order(result)


def _order(shape: Shape) -> list[int]:
    """Dimensions from minor to major, those of size one left out."""
    layout = shape.layout
    order = layout.minor_to_major if layout is not None else ()
    if not order:
        order = tuple(reversed(range(len(shape.dimensions))))
    return [d for d in order if d < len(shape.dimensions) and shape.dimensions[d] > 1]


def _is_transpose_of_program(launch: Instruction) -> bool:
    """By the names of the copies and transposes in it, and of the launch."""
    inside = launch.called[0].instructions if launch.called else ()
    named = [value.op_name for value in inside if value.opcode in ("copy", "transpose")]
    return any(
        name.partition(";")[0].rsplit("/", 1)[-1].split("[")[0] == "transpose"
        for name in (*named, launch.op_name)
    )


def _named(launch: Instruction) -> Instruction:
    """The launch or the nearest thing around it that has a line in Python.

    What reads it comes before what it is made of: a layout changes for its reader.
    """
    inside = launch.called[0].instructions if launch.called else ()
    readers: list[Instruction] = []
    value: Instruction | None = launch
    for _ in range(_MOST_STEPS):
        users = value.users if value is not None else ()
        readers += users
        value = next((user for user in users if user.opcode in _HANDS_ON), None)
    made_of: list[Instruction] = []
    value = launch
    for _ in range(_MOST_STEPS):
        if not value.operands or value.opcode == "parameter":
            break
        value = value.operands[0]
        made_of.append(value)
    around = [launch, *reversed(inside), *readers, *made_of]
    return next((one for one in around if one.location is not None), launch)
