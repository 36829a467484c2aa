"""Tables in columns: text to the left, numbers to the right."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from hloscope.pipeline.findings import Column, Quantity, Table, Text
from hloscope.report.quantities import basis_text, value_text
from hloscope.report.screen import Screen
from hloscope.report.shortening import ENOUGH, LEAST, plain_path, shorten

__all__ = ["draw_table"]

_GAP = "  "
_NARROWEST_WRAPPED = 24  # a last column of text is wrapped to no less


def draw_table(screen: Screen, table: Table) -> None:
    """Write a table's title, head, rows and note within the screen's width.

    A last column of plain text wraps; other text is shortened, and spare columns
    are left out where that is not enough. How a number is known stands below the
    table, under a letter.
    """
    table = _drawn(table)
    if table.title:
        screen.hanging([], table.title, "bold")
    (titles, *rows), legend = _texts(table)
    if rows:
        numeric = [
            column.unit is not None or any(isinstance(row[place], Quantity) for row in table.rows)
            for place, column in enumerate(table.columns)
        ]
        everything = [
            _Layout.of(column, [line[place] for line in (titles, *rows)], is_number)
            for place, (column, is_number) in enumerate(zip(table.columns, numeric, strict=True))
        ]
        columns = _fit(everything, screen.width)
        for number in range(len(rows) + 1):
            for line in _lines(columns, number):
                screen.line((line, "" if number else "dim"))
        left_out = [column.cells[0] for column in everything if column not in columns]
        if left_out:
            names = ", ".join(left_out)
            screen.hanging([], f"no room for: {names}; a wider terminal or --json has it", "dim")
    for mark, basis in legend:
        screen.hanging([(f"{mark} ", "dim")], basis, "dim")
    if table.note:
        screen.hanging([], table.note, "dim")


def _drawn(table: Table) -> Table:
    """The table without the columns that are in the JSON document alone."""
    kept = [place for place, column in enumerate(table.columns) if column.drawn]
    return dataclasses.replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


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


@dataclass(slots=True, eq=False)
class _Layout:
    """A column as it is drawn.

    Attributes:
        cells: Its title, then its text in every row.
        kind: How text is shortened; ``None`` for numbers, which are not.
        spare: Whether it may be left out.
        width: Characters that it gets.
        least: Characters that it needs.
        enough: Characters below which spare columns make room for it.
    """

    cells: list[str]
    kind: Text | None
    spare: bool
    width: int
    least: int
    enough: int

    @classmethod
    def of(cls, column: Column, cells: list[str], is_number: bool) -> _Layout:
        width = max(map(len, cells))
        if is_number:
            return cls(cells, None, column.spare, width, width, width)
        if column.text is Text.WORD:
            return cls(cells, column.text, column.spare, width, width, width)
        least, enough = min(width, LEAST[column.text]), min(width, ENOUGH[column.text])
        return cls(cells, column.text, column.spare, width, least, enough)

    def write_paths_plainly(self) -> None:
        """Take the quotes and brackets of pytree paths away, to save room."""
        if self.kind is Text.PATH:
            title, *paths = self.cells
            self.cells = [title, *map(plain_path, paths)]
            self.width = max(map(len, self.cells))
            self.least, self.enough = min(self.least, self.width), min(self.enough, self.width)


def _fit(columns: Sequence[_Layout], width: int) -> list[_Layout]:
    """Give each column its width, and leave spare ones out if need be.

    Every column is as wide as its widest cell. Where that is too much, the last
    one gives way first if it wraps, then whichever is furthest above its least.
    """
    kept = list(columns)

    def excess(sizes: Iterable[int]) -> int:
        return sum(sizes) + len(_GAP) * (len(kept) - 1) - width

    if excess(column.width for column in kept) > 0:
        for column in kept:
            column.write_paths_plainly()

    while excess(column.enough for column in kept) > 0:
        spare = next((column for column in reversed(kept) if column.spare), None)
        if spare is None:
            break
        kept.remove(spare)
    last = kept[-1]
    if last.kind is Text.PLAIN and any(" " in cell for cell in last.cells):
        over = excess(column.width for column in kept)
        last.width -= min(max(over, 0), max(last.width - _NARROWEST_WRAPPED, 0))
        least = sum(column.least for column in kept[:-1]) + _NARROWEST_WRAPPED
        if least + len(_GAP) * (len(kept) - 1) <= width:
            last.least = min(last.width, _NARROWEST_WRAPPED)
    for _ in range(excess(column.width for column in kept)):
        widest = max(kept, key=lambda column: column.width - column.least)
        if widest.width == widest.least:
            break
        widest.width -= 1
    return kept


def _lines(columns: Sequence[_Layout], number: int) -> list[str]:
    """A row of the table as one line, or as several where its last cell wraps."""
    shown = []
    for column in columns:
        cell, width = column.cells[number], column.width
        if column.kind is None:
            shown.append([cell.rjust(width)])
        elif column is columns[-1] and column.kind is Text.PLAIN and " " in cell:
            shown.append(textwrap.wrap(cell, width, break_on_hyphens=False))
        else:
            shown.append([shorten(cell, width, column.kind).ljust(width)])
    height = max(len(lines) for lines in shown)
    return [
        _GAP.join(
            lines[n] if n < len(lines) else " " * column.width
            for column, lines in zip(columns, shown, strict=True)
        ).rstrip()
        for n in range(height)
    ]
