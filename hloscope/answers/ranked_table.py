"""Tables whose rows are groups, ranked and cut: what the reports on types share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from hloscope.ir import Instruction
from hloscope.passes.converts import Convert
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Unit

__all__ = ["ONCE", "Row", "all_exact", "counted", "grouped", "line_of", "ranked_table"]

ONCE = "each branch taken, loops of unknown length run once"
"""The model of what is exact but for how often it runs."""

Row = tuple[str | Quantity, ...]
_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)


def grouped(items: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Items by their key, in the order in which the keys come."""
    groups: dict[_K, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def ranked_table(
    name: str,
    title: str,
    columns: Sequence[Column],
    ranked: Sequence[_T],
    row: Callable[[_T], Row],
    *,
    top: int,
    note: str = "",
) -> Table:
    """A table of the first rows of something ranked.

    Args:
        name: Stable name of the table.
        title: Its heading.
        columns: Its columns.
        ranked: What the rows are made of, first things first.
        row: Makes one.
        top: How many rows at most; 0 for all.
        note: What the columns mean; how many rows are left out comes before it.
    """
    shown = ranked[:top] if top else ranked
    left = len(ranked) - len(shown)
    said = [f"{left} more."] if left else []
    said += [note] if note else []
    return Table(name, title, tuple(columns), tuple(row(one) for one in shown), " ".join(said))


def counted(
    name: str,
    value: int | float | None,
    unit: Unit = Unit.COUNT,
    *,
    exact: bool = True,
    model: str = ONCE,
) -> Quantity:
    """A quantity that is exact, or modelled by ``model``, or unknown where it is ``None``."""
    if value is None:
        return Quantity(name, None, unit, Basis.UNKNOWN)
    if exact:
        return Quantity(name, value, unit)
    return Quantity(name, value, unit, Basis.MODELLED, model)


def all_exact(converts: Iterable[Convert]) -> bool:
    """Whether it is known how often each conversion runs."""
    return all(convert.times.exact is not None for convert in converts)


def line_of(instruction: Instruction) -> str:
    """``file.py:12``, else its scope; empty where it has neither."""
    location = instruction.location
    if location is None:
        return instruction.op_name.split(";")[0]
    return f"{location.file}:{location.line}"
