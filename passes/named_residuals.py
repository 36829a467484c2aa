"""Which of the arrays kept for the backward pass are values that the step names for its policies.

XLA's module knows no such names. The capture reads them from the jaxpr; here
they are joined with buffers by what both sides tell: the Python line and scope
of what computed the values, its primitive, and how many elements there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from hloscope.ir import Instruction, Module
from hloscope.ir.named_points import Crossing, NamedPoint, NamedPoints, RematPolicy
from hloscope.passes.residuals import Residual, Residuals
from hloscope.passes.step_parts import is_replay
from hloscope.pipeline.analyses import analysis

__all__ = ["BY_LINE", "NamedResiduals", "NamedValue", "name_residuals"]

BY_LINE = "named values matched by line, scope and shape"


@dataclass(frozen=True, slots=True)
class NamedValue:
    """One naming, over all layers that run it, with the buffers that keep its values.

    Attributes:
        points: The points of the jaxpr that are alike but for their scope.
        residuals: Buffers that hold its values, and no other name's.
        rebuilt: Instructions of the optimized module that compute it again.
    """

    points: tuple[NamedPoint, ...]
    residuals: tuple[Residual, ...]
    rebuilt: tuple[Instruction, ...] = ()

    @property
    def point(self) -> NamedPoint:
        """The first of the points; name, shape, place and fate are the same in all."""
        return self.points[0]

    @property
    def values(self) -> int | None:
        """Values in one step; ``None`` where a loop's length is not known."""
        counts = [point.values for point in self.points]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def recomputed(self) -> bool:
        """Whether the backward pass of the jaxpr computes it again."""
        return self.point.recomputed > 0

    @property
    def bytes(self) -> int:
        """Bytes of its buffers, padding included."""
        return sum(residual.buffer.size for residual in self.residuals)


@dataclass(frozen=True, slots=True)
class NamedResiduals:
    """The residuals of a program by name.

    Attributes:
        values: Every naming of the step, also those that keep nothing.
        ambiguous: Residuals that several names fit, with these.
        unnamed: Residuals that no name fits.
        policies: The step's remat policies.
    """

    values: tuple[NamedValue, ...]
    ambiguous: tuple[tuple[Residual, tuple[str, ...]], ...]
    unnamed: tuple[Residual, ...]
    policies: tuple[RematPolicy, ...]


@analysis
def name_residuals(residuals: Residuals, points: NamedPoints, module: Module) -> NamedResiduals:
    """Join the buffers with the named values of the jaxpr.

    A buffer is a name's if its values went through the ``reduce_precision`` that
    JAX puts behind a saved name, on the line of the naming, or else through the
    primitive that computed the named value, on its line; in both cases under
    the same scope and with as many elements, over the layers of loops and the
    parts of a partitioned program.

    Raises:
        Unavailable: The module is not scheduled, or comes without its jaxpr.
    """
    rows: dict[object, list[NamedPoint]] = {}
    for point in points.points:
        rows.setdefault(_row(point), []).append(point)
    found: dict[object, list[Residual]] = {key: [] for key in rows}
    ambiguous, unnamed = [], []
    for residual in residuals.residuals:
        fitting = _fitting(residual, points.points, module.num_partitions)
        names = tuple(dict.fromkeys(point.name for point in fitting))
        if not names:
            unnamed.append(residual)
        elif len(names) > 1:
            ambiguous.append((residual, names))
        else:
            kept = [point for point in fitting if point.crossing is not Crossing.NOT_KEPT]
            found[_row((kept or fitting)[0])].append(residual)
    again = _replayed(module)
    return NamedResiduals(
        tuple(
            NamedValue(tuple(alike), tuple(found[key]), tuple(_rebuilding(alike, again)))
            for key, alike in rows.items()
        ),
        tuple(ambiguous),
        tuple(unnamed),
        points.policies,
    )


_Place = tuple[str | None, int | None]


def _replayed(module: Module) -> dict[_Place, list[Instruction]]:
    """What a checkpoint runs again, by file and line."""
    found: dict[_Place, list[Instruction]] = {}
    for computation in module.computations.values():
        for instruction in computation.instructions:
            location = instruction.location
            if location is not None and is_replay(instruction):
                found.setdefault((location.file, location.line), []).append(instruction)
    return found


def _rebuilding(
    points: list[NamedPoint], replayed: Mapping[_Place, list[Instruction]]
) -> Iterator[Instruction]:
    """Instructions that a checkpoint runs again and that compute what is named."""
    makers = dict.fromkeys((p.maker.file, p.maker.line, p.maker.primitive) for p in points)
    for file, line, primitive in makers:
        for instruction in replayed.get((file, line), ()) if primitive else ():
            # Of several joined names the first tells where it runs.
            if instruction.op_name.partition(";")[0].rpartition("/")[2] == primitive:
                yield instruction


def _row(point: NamedPoint) -> object:
    return (
        point.name,
        point.dtype,
        point.dimensions,
        point.file,
        point.line,
        point.loops,
        point.crossing,
        point.recomputed > 0,
    )


def _fitting(
    residual: Residual, points: tuple[NamedPoint, ...], partitions: int
) -> list[NamedPoint]:
    """The points that fit; those that a rounded name proves, before others."""
    if residual.is_argument:
        return []
    shaped = [point for point in points if _has_elements(residual, point, partitions)]
    chain = residual.made.chain
    rounded = [
        point
        for point in shaped
        if any(
            i.opcode == "reduce-precision"
            and _is_at(i, point.file, point.line)
            and _is_under(i.op_name, point.scope)
            for i in chain
        )
    ]
    if rounded:
        # JAX rounds what it saves: of several names on one line those that it keeps.
        saved = [point for point in rounded if point.crossing is not Crossing.NOT_KEPT]
        return _made(saved or rounded, chain) or saved or rounded
    made = _made(shaped, chain)
    # A value and its cast may both have a name.
    return [point for point in made if point.dtype == residual.buffer.shape.dtype] or made


def _made(points: list[NamedPoint], chain: tuple[Instruction, ...]) -> list[NamedPoint]:
    """The points whose values the last instruction of a chain, or a cast in it, computed."""
    return [
        point
        for point in points
        if point.maker.primitive
        and any(
            _is_at(i, point.maker.file, point.maker.line)
            and _is_under(i.op_name, point.maker.scope, point.maker.primitive)
            # What only hands a value on may bear the name of what asked for it.
            for i in (*(i for i in chain if i.opcode == "convert"), chain[-1])
        )
    ]


def _is_at(instruction: Instruction, file: str | None, line: int | None) -> bool:
    location = instruction.location
    return location is not None and (location.file, location.line) == (file, line)


def _is_under(op_name: str, scope: str, primitive: str = "") -> bool:
    """Whether one of XLA's joined names has a scope's parts in order, and ends in a primitive."""
    for name in op_name.split(";"):
        parts = name.strip().split("/")
        rest = iter(parts)
        if primitive and parts[-1] != primitive:
            continue
        if all(part in rest for part in scope.split("/") if part):
            return True
    return False


def _has_elements(residual: Residual, point: NamedPoint, partitions: int) -> bool:
    elements = prod(residual.buffer.shape.dimensions)
    return any(
        total == elements
        or (elements and total % elements == 0 and partitions % (total // elements) == 0)
        for total in _totals(point)
    )


def _totals(point: NamedPoint) -> Iterator[int]:
    """Elements of one value, and of a stack of those of the loops around it."""
    total = point.elements
    yield total
    for length in reversed(point.loops):
        if length is None:
            return
        total *= length
        yield total
