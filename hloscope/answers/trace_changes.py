"""What became slower or faster, word by word, and what is left of the change of the whole."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from hloscope.answers.trace_cells import seconds
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Column, Quantity, Table, Text, Unit
from hloscope.traces.compared import Operation
from hloscope.traces.run_difference import Change, Changes, RunDifference

__all__ = [
    "Cells",
    "change_cells",
    "change_columns",
    "change_list",
    "named_cells",
    "operation_cells",
    "unit_of",
]

_Key = TypeVar("_Key", bound=Hashable)
Cells = tuple[str | Quantity, ...]


def unit_of(found: RunDifference) -> str:
    """What times are of."""
    return "a step" if found.by_step else "a device's window"


def change_columns(*first: Column) -> tuple[Column, ...]:
    """The columns of :func:`change_cells` behind the first ones."""
    return (
        *first,
        Column("before", Unit.SECONDS),
        Column("after", Unit.SECONDS),
        Column("change", Unit.SECONDS),
        Column("ratio", Unit.RATIO),
    )


def change_cells(before: float | None, after: float | None) -> Cells:
    """Both times, the change and the ratio, which says what is in one run alone."""
    change = seconds("change", (after or 0.0) - (before or 0.0))
    ratio: str | Quantity = ""
    if before and after:
        ratio = Quantity("ratio", after / before, Unit.RATIO)
    elif after:
        ratio = "new"
    elif before:
        ratio = "gone"
    return seconds("before", before or 0.0), seconds("after", after or 0.0), change, ratio


def named_cells(change: Change[str]) -> Cells:
    """A word by itself."""
    return (change.key,)


def operation_cells(change: Change[Operation]) -> Cells:
    """An operation's instruction, its name in the program, its line and its category."""
    key = change.key
    if not key.embedded:
        return key.name, "", "", str(key.kind)
    return change.example, key.name, key.source, str(key.kind)


def change_list(
    found: RunDifference,
    by: str,
    changes: Changes[_Key],
    top: int,
    cells: Callable[[Change[_Key]], Cells],
) -> Table | None:
    """What changed by more than noise, and then what is left of the change of the whole."""
    worth = [row for row in changes.rows if row.worth_saying]
    if not worth:
        return None
    shown = worth[: top or None]
    heads: list[Column] = [Column(by, text=Text.NAME)]
    if by == "op":
        heads += [
            Column("name in the program", text=Text.PATH),
            Column("source", text=Text.SOURCE, spare=True),
            Column("category", spare=True),
        ]
    rows: list[Cells] = [(*cells(row), *change_cells(row.before, row.after)) for row in shown]
    listed = {row.key for row in shown}
    rest = [row for row in changes.rows if row.key not in listed]
    blank: tuple[str, ...] = ("",) * (len(heads) - 1)
    for name, change in _closing(found, changes, rest):
        rows.append((name, *blank, "", "", seconds("change", change), ""))
    notes = [
        "Durations without what is nested, the mean of one device; --top 0 lists all that changed."
        if len(worth) > len(shown)
        else "Durations without what is nested, the mean of one device."
    ]
    quiet = len(changes.rows) - len(worth)
    if quiet:
        notes.append(f"{quiet:,} did not change, or by less than they vary from step to step.")
    return Table(
        f"by {by}",
        f"What changed by {by}, {unit_of(found)}",
        change_columns(*heads),
        tuple(rows),
        " ".join(notes),
    )


def _closing(
    found: RunDifference, changes: Changes[_Key], rest: Sequence[Change[_Key]]
) -> Iterator[tuple[str, float]]:
    """What adds up, with the rows that are listed, to the change of the whole."""
    if rest:
        yield f"({plural(len(rest), 'other')})", sum(row.change for row in rest)
    idle = found.part(lambda parts: parts.idle)
    yield "(idle)", idle[1] - idle[0]
    if changes.overlap:
        yield "(unexplained: side by side)", changes.overlap
    whole = found.part(lambda parts: parts.window.length)
    yield f"({unit_of(found)})", whole[1] - whole[0]
