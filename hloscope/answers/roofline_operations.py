"""What each operation of a program takes at least: a table by operation, scope or line."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from hloscope import units
from hloscope.chips import Chip
from hloscope.passes.roofline import Bound, Roofline, RooflineRow
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit

__all__ = [
    "ALL_RUN",
    "FLOOR",
    "ROOFLINE",
    "Grouping",
    "floor",
    "operations",
    "share_of_time",
]

FLOOR = "lower bound"
ROOFLINE = "roofline"
ALL_RUN = "every branch taken, unknown loops run once"
"""Models behind the times, by name."""


class Grouping(StrEnum):
    """What one line of the table of operations stands for."""

    OP = "op"
    SCOPE = "scope"
    SOURCE = "source"


def floor(members: Sequence[RooflineRow]) -> Quantity:
    """The floor of some operations' runs; no bound where it is not known that they run."""
    seconds = sum(row.nominal_seconds for row in members)
    if all(row.seconds is None for row in members):
        return Quantity("floor", None, Unit.SECONDS, Basis.UNKNOWN)
    if any(row.times.exact is None for row in members):
        return Quantity("floor", seconds, Unit.SECONDS, Basis.MODELLED, ALL_RUN)
    return Quantity("floor", seconds, Unit.SECONDS, Basis.BOUNDED, FLOOR)


def share_of_time(seconds: float, total: float, *, known: bool) -> Quantity:
    """A part of all the time; unknown where either is."""
    if not known or not total:
        return Quantity("share", None, Unit.SHARE, Basis.UNKNOWN)
    return Quantity("share", seconds / total, Unit.SHARE, Basis.MODELLED, ROOFLINE)


def operations(roofline: Roofline, by: Grouping, top: int) -> Table:
    """The operations, most time first.

    Args:
        roofline: The program's operations with their bounds.
        by: What one line stands for.
        top: How many lines; 0 for all.
    """
    groups = _grouped(roofline.rows, by)
    total = sum(row.nominal_seconds for row in roofline.rows)
    order = sorted(
        groups,
        key=lambda item: (
            -sum(row.nominal_seconds for row in item[1]),
            -sum((row.moved_bytes or 0) * row.times.nominal for row in item[1]),
            item[0],
        ),
    )
    shown = order[:top] if top else order
    with_estimate = roofline.estimated > 0
    columns = [
        Column(_TITLES[by], text=_TEXTS[by]),
        Column("FLOPs", Unit.FLOPS),
        Column("bytes", Unit.BYTES),
        Column("FLOP/B", Unit.COUNT),
        Column("bound"),
        Column("floor", Unit.SECONDS),
        Column("share", Unit.SHARE),
    ]
    if with_estimate:
        columns.append(Column("est.", Unit.SECONDS if roofline.chip.clock_hz else Unit.COUNT))
    rows = [
        _operation(name, members, total, roofline.chip if with_estimate else None)
        for name, members in shown
    ]
    left = order[len(shown) :]
    note = ""
    if left:
        seconds = sum(row.nominal_seconds for _, members in left for row in members)
        note = f"and {len(left)} more"
        note += f", {units.share(seconds / total)} of the floor" if total else ""
        note += "; --top 0 lists all"
    return Table("operations", _HEADS[by], tuple(columns), tuple(rows), note)


_TITLES = {Grouping.OP: "operation", Grouping.SCOPE: "scope", Grouping.SOURCE: "source"}
_TEXTS = {Grouping.OP: Text.NAME, Grouping.SCOPE: Text.PATH, Grouping.SOURCE: Text.SOURCE}
_HEADS = {
    Grouping.OP: "Operations, all runs of each together",
    Grouping.SCOPE: "Operations by scope",
    Grouping.SOURCE: "Operations by source line",
}


def _grouped(
    rows: Sequence[RooflineRow], by: Grouping
) -> Sequence[tuple[str, Sequence[RooflineRow]]]:
    if by is Grouping.OP:
        return [(_op(row), (row,)) for row in rows]
    groups: dict[str, list[RooflineRow]] = {}
    for row in rows:
        groups.setdefault(_scope(row) if by is Grouping.SCOPE else _source(row), []).append(row)
    return list(groups.items())


def _op(row: RooflineRow) -> str:
    runs = "" if row.times.exact == 1 else f" x{row.times}"
    return f"{row.instruction.name}{runs}"


def _scope(row: RooflineRow) -> str:
    """The scope that an operation stands in: its op_name without the primitive."""
    first = row.instruction.op_name.partition(";")[0]
    return first.rpartition("/")[0] or first or "(no scope)"


def _source(row: RooflineRow) -> str:
    location = row.instruction.location
    return str(location) if location is not None else "(no source line)"


def _operation(
    name: str, members: Sequence[RooflineRow], total: float, estimated_on: Chip | None
) -> tuple[str | Quantity, ...]:
    """One line; a group's bound is that of most of its time."""
    seconds = sum(row.nominal_seconds for row in members)
    known = any(row.seconds is not None for row in members)
    flops = _sum("FLOPs", members, [row.flops for row in members], Unit.FLOPS)
    moved = _sum("bytes", members, [row.moved_bytes for row in members], Unit.BYTES)
    by_bound: dict[Bound, float] = {}
    for row in members:
        by_bound[row.bound] = by_bound.get(row.bound, 0.0) + row.nominal_seconds
    cells: list[str | Quantity] = [
        name,
        flops,
        moved,
        _intensity(flops, moved),
        max(by_bound, key=lambda bound: by_bound[bound]).value,
        floor(members),
        share_of_time(seconds, total, known=known),
    ]
    if estimated_on is not None:
        cells.append(_estimate(members, estimated_on))
    return tuple(cells)


def _sum(
    name: str, members: Sequence[RooflineRow], values: Sequence[int | None], unit: Unit
) -> Quantity:
    """All runs together; unknown as soon as one is."""
    value = 0
    basis, model = Basis.EXACT, None
    for row, one in zip(members, values, strict=True):
        if one is None:
            return Quantity(name, None, unit, Basis.UNKNOWN)
        value += one * row.times.nominal
        if one and row.times.exact is None:
            basis, model = Basis.MODELLED, ALL_RUN
    return Quantity(name, value, unit, basis, model)


def _intensity(flops: Quantity, moved: Quantity) -> str | Quantity:
    if moved.value == 0:
        return "-"  # it works in on-chip memory alone
    if flops.value is None or moved.value is None:
        return Quantity("FLOP/B", None, Unit.COUNT, Basis.UNKNOWN)
    return Quantity("FLOP/B", flops.value / moved.value, Unit.COUNT, flops.basis, flops.model)


def _estimate(members: Sequence[RooflineRow], chip: Chip) -> str | Quantity:
    cycles = [row.cycles * row.times.nominal for row in members if row.cycles is not None]
    unit = Unit.SECONDS if chip.clock_hz else Unit.COUNT
    if not cycles:
        return "-"
    value = sum(cycles) / chip.clock_hz if chip.clock_hz else sum(cycles)
    return Quantity("estimate", value, unit, Basis.MODELLED, "compiler's estimate")
