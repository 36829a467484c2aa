"""Tables in columns: text to the left, numbers to the right."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from string import ascii_lowercase

from hloscope.pipeline.findings import Quantity, Table
from hloscope.report.quantities import basis_text, value_text
from hloscope.report.screen import Screen
from hloscope.units import shorten_middle

__all__ = ["draw_table"]

_GAP = "  "
_NARROWEST = 12  # a text column is shortened to no less
_NARROWEST_LAST = 24  # nor wrapped to less


def draw_table(screen: Screen, table: Table) -> None:
    """Write a table's title, head, rows and note within the screen's width.

    A last column of text wraps; other text gives way in its middle. How a number
    is known stands below the table, under a letter.
    """
    if table.title:
        screen.line((table.title, "bold"))
    numeric = [
        column.unit is not None or any(isinstance(row[place], Quantity) for row in table.rows)
        for place, column in enumerate(table.columns)
    ]
    (titles, *rows), legend = _texts(table)
    if rows:
        widths = _widths([titles, *rows], numeric, screen.width)
        for line in _lines(titles, widths, numeric):
            screen.line((line, "dim"))
        for row in rows:
            for line in _lines(row, widths, numeric):
                screen.line(line)
    for mark, basis in legend:
        screen.hanging([(f"{mark} ", "dim")], basis, "dim")
    if table.note:
        screen.hanging([], table.note, "dim")


def _texts(table: Table) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """Titles and cells as text, and what the marks behind numbers mean."""
    marks: dict[str, str] = {}
    marked = set()
    for row in table.rows:
        for place, cell in enumerate(row):
            basis = basis_text(cell) if isinstance(cell, Quantity) else ""
            if basis:
                marks.setdefault(basis, f"[{ascii_lowercase[len(marks) % 26]}]")
                marked.add(place)

    def text(place: int, cell: str | Quantity) -> str:
        shown = value_text(cell) if isinstance(cell, Quantity) else cell
        mark = marks.get(basis_text(cell), "") if isinstance(cell, Quantity) else ""
        # Numbers without a mark keep its room, so that digits stand below digits.
        return f"{shown} {mark:3}" if place in marked else shown

    lines = [tuple(column.title for column in table.columns), *table.rows]
    rows = [[text(place, cell) for place, cell in enumerate(line)] for line in lines]
    return rows, [(mark, basis) for basis, mark in marks.items()]


def _widths(rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int) -> list[int]:
    """Each column as wide as its widest cell; where that is too wide, text gives way.

    The last column first, since it wraps; then whichever is the widest.
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(numeric))]
    last = len(numeric) - 1
    least = [widths[p] if numeric[p] else min(widths[p], _NARROWEST) for p in range(len(numeric))]
    excess = sum(widths) + len(_GAP) * last - width
    if excess > 0 and not numeric[last]:
        given = min(excess, max(widths[last] - _NARROWEST_LAST, 0))
        widths[last] -= given
        excess -= given
    while excess > 0:
        widest = max(range(len(widths)), key=lambda place: widths[place] - least[place])
        if widths[widest] == least[widest]:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _lines(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    shown = []
    last = len(cells) - 1
    for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        if numeric[place]:
            shown.append([cell.rjust(width)])
        elif place == last and " " in cell:
            shown.append(textwrap.wrap(cell, width, break_on_hyphens=False))
        else:
            shown.append([shorten_middle(cell, width).ljust(width)])
    blank = [" " * width for width in widths]
    height = max(len(column) for column in shown)
    return [
        _GAP.join(c[n] if n < len(c) else blank[p] for p, c in enumerate(shown)).rstrip()
        for n in range(height)
    ]
