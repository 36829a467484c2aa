"""A benchmark as a report: times beside errors, and programs beside both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from hloscope import units
from hloscope.answers.kernel_route import Route, memory_of
from hloscope.kernels.case import Direction
from hloscope.kernels.errors import ResultError
from hloscope.kernels.measurement import Measured, Outcome
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit

__all__ = ["find_fastest", "report_bench"]

_NOTE = (
    "times: medians of warm calls, implementations in turns. spread: between the quartiles, as a "
    "share of the median. error: the largest difference from float64 as a share of the largest "
    "magnitude, the worst of all results; bound: what the dtype explains."
)


def report_bench(
    rows: Sequence[Measured],
    header: Mapping[str, str | Quantity],
    route_of: Callable[[Measured], Route | None],
    notes: Sequence[str] = (),
) -> Report:
    """Lay out what was measured, one table of times for each shape.

    Args:
        rows: Every case; those of one shape and dtype stand together.
        header: Facts that hold for all of them.
        route_of: Reads the way that XLA took from a row's program; ``None`` where
            it has none that can be read.
        notes: Further facts about the run.
    """
    tables: list[Table] = []
    winners = []
    for (shape, dtype), group in groupby(rows, key=lambda row: (row.case.shape, row.case.dtype)):
        together = list(group)
        fastest = find_fastest(together)
        if fastest:
            level = f" (level with it: {', '.join(fastest[1:])})" if fastest[1:] else ""
            winners.append((shape, fastest[0] + level))
        tables.append(_times(shape, dtype, together, fastest))
    tables.append(_errors(rows))
    tables.append(_programs(rows, route_of))
    wrong = list(dict.fromkeys(row.case.implementation.name for row in rows if row.is_wrong))
    family = rows[0].case.family
    return Report(
        "bench",
        family.name,
        header,
        tables=tuple(table for table in tables if table.rows),
        summary=_summary(rows, winners, wrong),
        notes=tuple(notes),
    )


def find_fastest(rows: Sequence[Measured]) -> list[str]:
    """Implementations that are fastest on one shape: the first, and those level with it.

    Only those that are right in every direction are compared, by the longest
    direction that was asked for. Level is whose lower quartile lies below the
    first one's upper one.
    """
    right = [
        own for own in _by_implementation(rows).values() if all(row.counts for row in own.values())
    ]
    timed = sorted(
        (list(own.values())[-1] for own in right),
        key=lambda row: row.times.median if row.times else math.inf,
    )
    if not timed or timed[0].times is None:
        return []
    limit = timed[0].times.quartiles[1]
    return [
        row.case.implementation.name
        for number, row in enumerate(timed)
        if not number or (row.times is not None and row.times.quartiles[0] <= limit)
    ]


def _by_implementation(rows: Sequence[Measured]) -> dict[str, dict[Direction, Measured]]:
    """Rows of one shape by implementation and direction, forward first."""
    found: dict[str, dict[Direction, Measured]] = {}
    for direction in Direction:
        for row in rows:
            if row.case.direction is direction:
                found.setdefault(row.case.implementation.name, {})[direction] = row
    return found


def _times(shape: str, dtype: str, rows: Sequence[Measured], fastest: Sequence[str]) -> Table:
    directions = [d for d in Direction if any(row.case.direction is d for row in rows)]
    columns = [Column("implementation", text=Text.WORD)]
    for direction in directions:
        title = "forward" if direction is Direction.FORWARD else "with backward"
        columns += [Column(title, Unit.SECONDS), Column("spread", Unit.SHARE, spare=True)]
    columns += [
        Column("error", Unit.COUNT),
        Column("bound", Unit.COUNT, spare=True),
        Column("verdict"),
    ]
    drawn = []
    for name, own in _by_implementation(rows).items():
        cells: list[str | Quantity] = [name]
        for direction in directions:
            cells += _time_cells(own[direction])
        cells += _worst(list(own.values()))
        cells.append(_verdict(name, list(own.values()), fastest))
        drawn.append(tuple(cells))
    return Table(f"times.{shape}.{dtype}", f"{shape} {dtype}", tuple(columns), tuple(drawn), _NOTE)


def _time_cells(row: Measured) -> tuple[Quantity, Quantity]:
    """Median and spread; neither where the numbers were not held against the oracle."""
    if row.times is None or not row.errors:
        reason = row.reason or row.outcome.value
        return (
            Quantity(reason, None, Unit.SECONDS, Basis.UNKNOWN),
            Quantity(reason, None, Unit.SHARE, Basis.UNKNOWN),
        )
    low, high = row.times.quartiles
    middle = row.times.median
    return (
        Quantity("median", middle, Unit.SECONDS),
        Quantity("spread", (high - low) / middle if middle else 0.0, Unit.SHARE),
    )


def _worst(rows: Sequence[Measured]) -> tuple[Quantity, Quantity]:
    errors = [error for row in rows for error in row.errors]
    if not errors:
        return (
            Quantity("not checked", None, basis=Basis.UNKNOWN),
            Quantity("not checked", None, basis=Basis.UNKNOWN),
        )
    worst = max(errors, key=lambda error: error.largest / error.bound)
    return _number("error", worst.largest), _number("bound", worst.bound)


def _number(name: str, value: float) -> Quantity:
    if math.isfinite(value):
        return Quantity(name, value)
    return Quantity(f"{name}: no number", None, basis=Basis.UNKNOWN)


def _verdict(name: str, rows: Sequence[Measured], fastest: Sequence[str]) -> str:
    """What to make of an implementation; trouble in either direction comes first."""
    wrong = [error for row in rows for error in row.errors if error.is_wrong]
    if wrong:
        return f"wrong: {', '.join(dict.fromkeys(_title(error) for error in wrong))}"
    for row in rows:
        if row.outcome not in (Outcome.MEASURED, Outcome.INTERPRETED):
            where = (
                "backward: " if row.case.direction is Direction.BACKWARD and len(rows) > 1 else ""
            )
            same = all(other.reason == row.reason for other in rows)
            return f"{row.outcome.value}: {'' if same else where}{row.reason}"
    if any(row.outcome is Outcome.INTERPRETED for row in rows):
        return "right, interpreted here: not timed"
    if name in fastest:
        return "fastest" if name == fastest[0] else "level with the fastest"
    return "right"


def _title(error: ResultError) -> str:
    return f"d {error.name}" if error.gradient else error.name


def _errors(rows: Sequence[Measured]) -> Table:
    several = len({row.case.shape for row in rows}) > 1
    drawn = [
        (
            row.case.shape if several else "",
            row.case.implementation.name,
            _title(error),
            _number("largest", error.largest),
            _number("norm", error.norm),
            _number("bound", error.bound),
            "no" if error.is_wrong else "yes",
        )
        for row in rows
        for error in row.errors
        # With gradients the output is compared once more: once is enough to read.
        if not (row.case.direction is Direction.BACKWARD and not error.gradient) or error.is_wrong
    ]
    columns = (
        Column("shape", text=Text.WORD),
        Column("implementation", text=Text.WORD),
        Column("result"),
        Column("largest", Unit.COUNT),
        Column("norm", Unit.COUNT),
        Column("bound", Unit.COUNT),
        Column("within"),
    )
    first = 0 if several else 1
    return Table(
        "errors",
        "Errors against float64",
        columns[first:],
        tuple(row[first:] for row in drawn),
        "d: gradient by an operand. norm: of the difference, as a share of the oracle's norm; it "
        "may take half of the bound.",
    )


def _programs(rows: Sequence[Measured], route_of: Callable[[Measured], Route | None]) -> Table:
    several = len({row.case.shape for row in rows}) > 1

    def drawn() -> Iterator[tuple[str | Quantity, ...]]:
        for row in rows:
            route = route_of(row) if row.hlo else None
            if route is None:
                continue
            temporaries, peak = memory_of(row.memory or None)
            yield (
                row.case.shape,
                row.case.implementation.name,
                row.case.direction.value,
                temporaries,
                peak,
                route.launches,
                route.words,
            )

    columns = (
        Column("shape", text=Text.WORD),
        Column("implementation", text=Text.WORD),
        Column("direction"),
        Column("temporaries", Unit.BYTES),
        Column("peak", Unit.BYTES),
        Column("kernels", Unit.COUNT),
        Column("route"),
    )
    first = 0 if several else 1
    return Table(
        "programs",
        "What XLA made of them",
        columns[first:],
        tuple(row[first:] for row in drawn()),
    )


def _summary(
    rows: Sequence[Measured], winners: Sequence[tuple[str, str]], wrong: Sequence[str]
) -> str:
    names = list(dict.fromkeys(name for _, name in winners))
    if not any(row.errors for row in rows):
        reasons: dict[str, dict[str, None]] = {}
        for row in rows:
            reason = row.reason or row.outcome.value
            reasons.setdefault(reason, {})[row.case.implementation.name] = None
        each = [
            f"{', '.join(those)}: {reason}" if len(reasons) > 1 else reason
            for reason, those in reasons.items()
        ]
        said = f"Nothing ran: {'; '.join(each)}."
    elif not winners:
        said = "Nothing was timed that is right."
    elif len(names) == 1:
        where = "" if len(winners) == 1 else f" on {units.count(len(winners))} shapes"
        said = f"Fastest{where}: {names[0]}."
    else:
        said = "Fastest: " + ", ".join(f"{name} on {shape}" for shape, name in winners) + "."
    if wrong:
        said += f" {plural(len(wrong), 'implementation')} gave wrong results: {', '.join(wrong)}."
    return said
