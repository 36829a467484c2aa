"""A trace's time by category, kernel, operation, scope, source line, module or stream."""

from __future__ import annotations

from hloscope.answers.trace_cells import seconds, share
from hloscope.answers.trace_kernels import (
    LAUNCH_NOTE,
    kernel_title,
    launch_cells,
    launch_columns,
    launches_of,
)
from hloscope.pipeline.findings import Column, Quantity, Table, Text, Unit
from hloscope.traces.summary import Trace
from hloscope.traces.tallies import Tally

__all__ = ["list_table", "merged"]

_TEXTS = {"source": Text.SOURCE, "scope": Text.PATH}


def merged(trace: Trace, by: str) -> dict[str, Tally]:
    """Time by one of ``BY`` of all devices together, the longest first."""
    found: dict[str, Tally] = {}
    for device in trace.devices:
        for word, tally in device.tallies[by].items():
            found[word] = found.get(word, Tally(0, 0)) + tally
    return dict(sorted(found.items(), key=lambda item: -item[1].time))


def list_table(trace: Trace, by: str, top: int) -> Table:
    """The list that was asked for.

    Args:
        trace: The run.
        by: One of ``BY``.
        top: Rows at most; 0 for all.
    """
    tallies = merged(trace, by)
    total = sum(tally.time for tally in tallies.values())
    shown = list(tallies.items())[: top or None]
    steps = _steps(trace)
    kernels = by == "kernel"
    columns = [
        Column(by, text=_TEXTS.get(by, Text.NAME)),
        Column("time", Unit.SECONDS),
        Column("share", Unit.SHARE),
        Column("events", Unit.COUNT, drawn=not steps),
    ]
    if steps:
        columns += [Column("a step", Unit.SECONDS), Column("events a step", Unit.COUNT)]
    launches = launches_of(trace) if kernels else {}
    if launches:
        columns += launch_columns(launches)
    if kernels:
        columns.append(Column("name", text=Text.NAME, drawn=False))
    rows: list[tuple[str | Quantity, ...]] = []
    for word, tally in shown:
        row: list[str | Quantity] = [
            kernel_title(word) if kernels else word,
            seconds("time", tally.time),
            share("share", tally.time, total),
            Quantity("events", tally.number),
        ]
        if steps:
            row.append(seconds("a step", tally.time / steps))
            row.append(Quantity("events a step", round(tally.number / steps, 1)))
        if launches:
            row += launch_cells(launches.get(word))
        if kernels:
            row.append(word)
        rows.append(tuple(row))
    rest = len(tallies) - len(shown)
    notes = ["Durations added up, without what is nested: what runs side by side counts twice."]
    if steps:
        notes.append("a step: of one device.")
    if any(column.spare and column.drawn for column in columns):
        notes.append(LAUNCH_NOTE)
    if rest:
        notes.append(f"{rest:,} more; --top 0 lists all.")
    names = list(dict.fromkeys(device.windows.chosen.name for device in trace.devices))
    return Table(
        f"by {by}",
        f"Time by {by}, window: {' and '.join(names)}{_together(trace)}",
        tuple(columns),
        tuple(rows),
        " ".join(notes),
    )


def _together(trace: Trace) -> str:
    return f", {len(trace.devices)} devices together" if len(trace.devices) > 1 else ""


def _steps(trace: Trace) -> int:
    """Steps of all devices in their chosen windows; 0 where one has none."""
    total = 0
    for device in trace.devices:
        if device.part:
            continue  # a SparseCore works within the steps of its TensorCore
        mine = len(device.windows.chosen.steps(device.steps))
        if not mine:
            return 0
        total += mine
    return total
