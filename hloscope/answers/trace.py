"""What a recording shows: how long devices worked, on what, and what held them up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope import units
from hloscope.answers.trace_cells import PS, device_name, seconds, share
from hloscope.answers.trace_exchanges import exchange_tables
from hloscope.answers.trace_host import host_tables, pace_notes
from hloscope.answers.trace_join import instruction_table, join_facts, join_sentence
from hloscope.answers.trace_lists import list_table
from hloscope.answers.trace_steps import step_summary, step_table
from hloscope.passes.traced_join import TraceJoin
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Column, Quantity, Report, Table, Text, Unit
from hloscope.traces.exposure import Parts
from hloscope.traces.host_pace import Bound
from hloscope.traces.summary import DeviceSummary, Trace

__all__ = ["SHOWN", "in_short", "report_trace"]

SHOWN = 20
"""Rows of a table where nothing else is said."""

_INSTRUCTIONS = 10  # of which the names are long, where nothing else is said
_EXCHANGES = 8
_MANY = 8  # devices beyond which each has one line
_DIFFERENT = 0.01  # of the share of busy time, from which two windows tell two stories


def report_trace(
    trace: Trace,
    *,
    by: str = "category",
    steps: bool = False,
    top: int = SHOWN,
    join: TraceJoin | None = None,
) -> Report:
    """Say what devices did in a run.

    Args:
        trace: The run.
        by: What to list time by, one of ``hloscope.traces.tallies.BY``.
        steps: Whether to list each step, and nothing else but the overview.
        top: How many rows are listed at most; 0 for all.
        join: The run held against its programs, if it is.
    """
    shown = _windows(trace, top)
    tables = [_devices(trace, shown), _parts(trace, shown)]
    stepped = any(device.steps.rows for device in trace.devices)
    if steps:
        tables.append(step_table(trace, top))
    else:
        tables.append(list_table(trace, by, top))
        if stepped:
            tables.append(step_summary(trace))
        tables += exchange_tables(trace, _EXCHANGES if top == SHOWN else top)
    tables += host_tables(trace, steps=steps, top=top)
    if join is not None and not steps:
        tables.append(instruction_table(join, _INSTRUCTIONS if top == SHOWN else top))
    notes = [note for host in trace.hosts for note in _of_host(trace, host.host, host.notes)]
    return Report(
        "trace",
        trace.name,
        {
            "devices": Quantity("devices", len(trace.devices)),
            **_partial(trace),
            **(join_facts(join) if join else {}),
        },
        summary=_summary(trace) + (join_sentence(join) if join else ""),
        tables=tuple(tables),
        notes=(
            *pace_notes(trace),
            *trace.notes,
            *dict.fromkeys(notes),
            *(join.notes if join else ()),
        ),
    )


def in_short(trace: Trace) -> str:
    """One line for the head of another report: which run, its devices, its window."""
    kinds = list(dict.fromkeys(device.kind.value.upper() for device in trace.devices))
    windows = list(dict.fromkeys(device.windows.chosen.name for device in trace.devices))
    steps = max(len(device.steps.rows) for device in trace.devices)
    return (
        f"{trace.name}: {len(trace.devices)} {'/'.join(kinds)}, "
        f"{plural(steps, 'step')}, {' and '.join(windows)}"
    )


def _partial(trace: Trace) -> dict[str, str]:
    """What is missing of files that are cut off, for the head of the report."""
    cut = [(host.host, host.cut) for host in trace.hosts if host.cut]
    several = len(trace.hosts) > 1
    text = "; ".join(f"{host}: {what}" if several else what for host, what in cut)
    return {"partial": text} if text else {}


def _of_host(trace: Trace, host: str, notes: tuple[str, ...]) -> Iterator[str]:
    for note in notes:
        yield f"{host}: {note}" if len(trace.hosts) > 1 else note


def _summary(trace: Trace) -> str:
    first = max(trace.devices, key=lambda device: device.whole.busy)
    length = first.whole.window.length
    whole = first.whole.busy / length if length else 0.0
    text = f"{device_name(trace, first)} was busy {whole:.1%} of {units.seconds(length * PS)}"
    if first.steady is not None and first.steady.window.length:
        steady = first.steady.busy / first.steady.window.length
        if abs(steady - whole) > _DIFFERENT:
            text = (
                f"{device_name(trace, first)} was busy {steady:.1%} in steady state; {whole:.1%} "
                f"over the whole window of {units.seconds(length * PS)}"
                f"{_because(first) if steady > whole else ''}"
            )
    if first.pace is not None and first.pace.bound is not Bound.UNCLEAR:
        text += f"; it is {first.pace.bound.value}"
    others = len(trace.devices) - 1
    return f"{text}; {plural(others, 'device')} more." if others else f"{text}."


def _because(device: DeviceSummary) -> str:
    """Why the whole is less busy than steady state: what lies before it, or behind."""
    assert device.steady is not None
    start, rows = device.steady.window.begin, device.steps.rows
    early = [place for place, row in enumerate(rows) if row.begin < start]
    idle = sum(rows[n].wall - rows[n].busy + rows[n + 1].gap for n in early)
    if not early:
        return ""
    first = "step holds" if len(early) == 1 else f"{len(early)} steps hold"
    return f" because the first {first} {units.seconds(idle * PS)} of gaps"


_Shown = Sequence[tuple[DeviceSummary, Parts]]


def _windows(trace: Trace, top: int) -> _Shown:
    """Each device's windows; of many devices the chosen one alone, and no more than asked for."""
    if len(trace.devices) > _MANY:
        return [(device, device.parts) for device in trace.devices[: top or None]]
    rows: list[tuple[DeviceSummary, Parts]] = []
    for device in trace.devices:
        every = [device.whole, device.steady, device.parts]
        rows += [
            (device, parts)
            for place, parts in enumerate(every)
            if parts is not None and parts not in every[:place]
        ]
    return rows


def _left_out(trace: Trace, shown: _Shown) -> str:
    left = len(trace.devices) - len({id(device) for device, _ in shown})
    return f"{plural(left, 'device')} more; --top 0 lists all. " if left else ""


def _devices(trace: Trace, shown: _Shown) -> Table:
    return Table(
        "devices",
        "Devices: the union of what ran on all lines",
        (
            Column("device", text=Text.WORD),
            Column("window"),
            Column("length", Unit.SECONDS),
            Column("busy", Unit.SECONDS),
            Column("share", Unit.SHARE),
            Column("events", Unit.COUNT),
            Column("joined", Unit.SHARE),
            Column("unplaced", Unit.SHARE),
        ),
        tuple(
            (
                device_name(trace, device),
                parts.window.name,
                seconds("length", parts.window.length),
                seconds("busy", parts.busy),
                share("share", parts.busy, parts.window.length),
                Quantity("events", device.events),
                share("joined", device.joined, device.time),
                share("unplaced", device.unplaced, device.time),
            )
            for device, parts in shown
        ),
        f"{_left_out(trace, shown)}"
        "joined: share of the time whose HLO instruction is embedded in the recording. "
        "unplaced: share that no rule could put into a category.",
    )


def _parts(trace: Trace, shown: _Shown) -> Table:
    return Table(
        "parts",
        "What the window was spent on; the parts add up to it",
        (
            Column("device", text=Text.WORD),
            Column("window"),
            Column("compute", Unit.SECONDS),
            Column("exposed comm.", Unit.SECONDS),
            Column("exposed copies", Unit.SECONDS),
            Column("control", Unit.SECONDS),
            Column("idle", Unit.SECONDS),
        ),
        tuple(
            (
                device_name(trace, device),
                parts.window.name,
                seconds("compute", parts.compute),
                seconds("exposed comm.", parts.exposed_communication),
                seconds("exposed copies", parts.exposed_copies),
                seconds("control", parts.control),
                seconds("idle", parts.idle),
            )
            for device, parts in shown
        ),
    )
