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
    """Titles and cells as text, and what the marks behind numbers mean.

    Where all numbers of a column are known in one way, its title bears the mark.
    """
    marks: dict[str, str] = {}
    in_title: dict[int, str] = {}
    marked = set()
    for place in range(len(table.columns)):
        cells = [row[place] for row in table.rows]
        known = [c for c in cells if isinstance(c, Quantity) and c.value is not None]
        bases = dict.fromkeys(basis_text(cell) for cell in known)
        for basis in filter(None, bases):
            marks.setdefault(basis, f"[{ascii_lowercase[len(marks) % 26]}]")
        if len(bases) == 1 and len(known) > 1:
            in_title[place] = marks.get(next(iter(bases)), "")
        elif any(bases):
            marked.add(place)

    def text(place: int, cell: str | Quantity) -> str:
        shown = value_text(cell) if isinstance(cell, Quantity) else cell
        if place not in marked:
            return shown
        mark = marks.get(basis_text(cell), "") if isinstance(cell, Quantity) else ""
        # Numbers without a mark keep its room, so that digits stand below digits.
        return f"{shown} {mark:3}"

    titles = [
        f"{column.title}{in_title[place]}" if in_title.get(place) else text(place, column.title)
        for place, column in enumerate(table.columns)
    ]
    rows = [[text(place, cell) for place, cell in enumerate(row)] for row in table.rows]
    return [titles, *rows], [(mark, basis) for basis, mark in marks.items()]


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
