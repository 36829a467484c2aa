"""Tables in columns: text to the left, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

from hloscope.pipeline.findings import Quantity, Table
from hloscope.report.quantities import quantity_text
from hloscope.report.screen import Screen
from hloscope.units import shorten_middle

__all__ = ["draw_table"]

_GAP = 2
_NARROWEST = 12  # a text column is shortened to no less


def draw_table(screen: Screen, table: Table) -> None:
    """Write a table's title, head, rows and note within the screen's width."""
    if table.title:
        screen.line((table.title, "bold"))
    numeric = [
        column.unit is not None or any(isinstance(row[place], Quantity) for row in table.rows)
        for place, column in enumerate(table.columns)
    ]
    rows = [[_text(cell) for cell in row] for row in table.rows]
    titles = [column.title for column in table.columns]
    widths = _widths([titles, *rows], numeric, screen.width)
    screen.line((_join(titles, widths, numeric), "dim"))
    for row in rows:
        screen.line(_join(row, widths, numeric))
    if table.note:
        screen.hanging([("", "")], table.note, "dim")


def _text(cell: str | Quantity) -> str:
    return quantity_text(cell) if isinstance(cell, Quantity) else cell


def _widths(rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int) -> list[int]:
    """Each column as wide as its widest cell, then the widest text columns give way."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(numeric))]
    shrinkable = [place for place, is_number in enumerate(numeric) if not is_number]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0 and shrinkable:
        widest = max(shrinkable, key=lambda place: widths[place])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _join(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    shown = [
        cell.rjust(width) if is_number else shorten_middle(cell, width).ljust(width)
        for cell, width, is_number in zip(cells, widths, numeric, strict=True)
    ]
    return (" " * _GAP).join(shown).rstrip()
