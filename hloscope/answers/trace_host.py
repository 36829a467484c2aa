"""The host of a trace: who sets the pace, what it spent its time on, what it did in idle gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median

from hloscope.answers.trace_cells import device_name, seconds, share
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit
from hloscope.traces.host_budget import HostStep
from hloscope.traces.host_kinds import HostKind
from hloscope.traces.host_pace import Bound, DevicePace
from hloscope.traces.summary import DeviceSummary, HostSummary, Trace

__all__ = ["host_tables", "pace_notes"]

_NOTABLE = 1e-3  # of the window, from which an idle gap is worth a line
_SHORT = 40  # letters of an event's name that say enough


def pace_notes(trace: Trace) -> Iterator[str]:
    """Who sets the pace, for each of the verdicts that devices have, with its numbers."""
    by_bound: dict[Bound, list[tuple[DeviceSummary, DevicePace]]] = {}
    for _, device, pace in _paced(trace):
        by_bound.setdefault(pace.bound, []).append((device, pace))
    for bound, rows in by_bound.items():
        first, pace = max(rows, key=lambda row: row[0].parts.busy)
        more = f" ({plural(len(rows) - 1, 'device')} more)" if len(rows) > 1 else ""
        asked = [lead.asked for lead in pace.leads if lead.asked is not None]
        waits = ""
        if bound is not Bound.DEVICE and any(asked):
            waits = f"; the loop waits for {sum(asked)} of {len(asked)} steps before the next"
        yield f"{device_name(trace, first)} is {_verdict(bound)}{more}: {pace.reason}{waits}."


def _verdict(bound: Bound) -> str:
    return bound.value if bound is not Bound.UNCLEAR else "bound by what is unclear"


def host_tables(trace: Trace, *, steps: bool, top: int) -> tuple[Table, ...]:
    """The tables of the host: who sets the pace, its budget, the longest idle gaps.

    Args:
        trace: The run.
        steps: Whether each step is listed, instead of the budget of the window.
        top: Rows of each host's steps at most; 0 for all.
    """
    tables = []
    if any(device.steps.rows or pace.leads for _, device, pace in _paced(trace)):
        tables.append(_pace_table(trace, top))
    hosts = [host for host in trace.hosts if host.budget is not None]
    if steps:
        if any(host.budget.steps for host in hosts if host.budget):
            tables.append(_step_table(hosts, top))
        return tuple(tables)
    if hosts:
        tables.append(_budget_table(hosts))
    gaps = _gap_table(trace, top)
    if gaps.rows:
        tables.append(gaps)
    return tuple(tables)


def _paced(trace: Trace) -> Iterator[tuple[HostSummary, DeviceSummary, DevicePace]]:
    for host in trace.hosts:
        for device in host.devices:
            if device.pace is not None:
                yield host, device, device.pace


def _pace_table(trace: Trace, top: int) -> Table:
    rows = []
    for host, device, pace in islice(_paced(trace), top or None):
        busy = [step.busy for step in device.windows.chosen.steps(device.steps)]
        own = [step.own for step in host.budget.counted] if host.budget is not None else []
        asked = [lead.asked for lead in pace.leads if lead.asked is not None]
        rows.append(
            (
                device_name(trace, device),
                pace.bound.value,
                seconds("device a step", _median(busy)),
                seconds("host a step", _median(own)),
                _count("steps ahead", _median([lead.steps for lead in pace.leads])),
                seconds("time ahead", _median([lead.time for lead in pace.leads])),
                f"{sum(asked)} of {len(asked)}" if asked else "unknown",
            )
        )
    unknown = dict.fromkeys(pace.unknown for *_, pace in _paced(trace) if pace.unknown)
    return Table(
        "pace",
        "Who sets the pace",
        (
            Column("device", text=Text.WORD),
            Column("verdict", text=Text.WORD),
            Column("device a step", Unit.SECONDS),
            Column("host a step", Unit.SECONDS),
            Column("steps ahead", Unit.COUNT),
            Column("time ahead", Unit.SECONDS, spare=True),
            Column("waited for"),
        ),
        tuple(rows),
        "Medians. host: its own work, waiting left out. ahead: steps that it had launched beyond "
        "the one that began. waited for: steps whose results it asked for before it launched "
        "the next." + (f" Launches are not told apart: {'; '.join(unknown)}." if unknown else ""),
    )


def _median(values: Sequence[int]) -> float | None:
    return median(values) if values else None


def _count(name: str, value: float | None) -> Quantity:
    if value is None:
        return Quantity(name, None, basis=Basis.UNKNOWN)
    return Quantity(name, value)


def _budget_table(hosts: Sequence[HostSummary]) -> Table:
    rows = []
    threads = []
    for host in hosts:
        budget = host.budget
        assert budget is not None
        threads.append(f"{budget.thread}: {budget.why}")
        number = len(budget.counted)
        for kind, time in sorted(budget.times.items(), key=lambda each: -each[1]):
            rows.append(
                (
                    host.host,
                    kind.value,
                    seconds("time", time),
                    share("share", time, budget.window.length),
                    seconds("a step", time / number if number else None),
                )
            )
    python = all(host.budget is not None and host.budget.python for host in hosts)
    return Table(
        "host",
        f"The host's time ({'; '.join(dict.fromkeys(threads))})",
        (
            Column("host", text=Text.WORD, drawn=len(hosts) > 1),
            Column("spent on"),
            Column("time", Unit.SECONDS),
            Column("share", Unit.SHARE),
            Column("a step", Unit.SECONDS),
        ),
        tuple(rows),
        "From where it began the window's first step on; the parts add up. The innermost event "
        "decides; a fetch waits while a device works. untraced: no event covers it"
        + ("." if python else ", as Python's are not recorded."),
    )


def _step_table(hosts: Sequence[HostSummary], top: int) -> Table:
    rows = []
    left = 0
    for host in hosts:
        steps = host.budget.steps if host.budget is not None else ()
        left += max(len(steps) - top, 0) if top else 0
        rows += [_step_row(host.host, step) for step in steps[: top or None]]
    return Table(
        "host steps",
        "Steps of the host: each from its beginning to the next one's",
        (
            Column("host", text=Text.WORD, drawn=len(hosts) > 1),
            Column("step", text=Text.WORD),
            Column("wall", Unit.SECONDS),
            Column("own work", Unit.SECONDS),
            Column("waiting", Unit.SECONDS),
            Column("mostly"),
        ),
        tuple(rows),
        (f"{left:,} more; --top 0 lists all. " if left else "")
        + "waiting: for the device, or as one. mostly: what most of the rest was spent on.",
    )


def _step_row(host: str, step: HostStep) -> tuple[str | Quantity, ...]:
    waited = (HostKind.DEVICE_WAIT, HostKind.DEVICE_WORK)
    own = {kind: time for kind, time in step.times.items() if kind not in waited}
    return (
        host,
        str(step.number),
        seconds("wall", step.wall),
        seconds("own work", step.own),
        seconds("waiting", step.wall - step.own),
        max(own, key=own.__getitem__).value if own else "",
    )


def _gap_table(trace: Trace, top: int) -> Table:
    rows: list[tuple[str | Quantity, ...]] = []
    for _, device, pace in _paced(trace):
        for gap in pace.gaps:
            if gap.length < _NOTABLE * device.windows.chosen.length or (top and len(rows) >= top):
                continue
            where = "behind the steps"
            if gap.step is not None:
                where = f"{'in' if gap.inside else 'before'} {gap.step}"
            rows.append(
                (
                    device_name(trace, device),
                    seconds("at", gap.begin - device.windows.whole.begin),
                    seconds("length", gap.length),
                    where if device.steps.rows else "unknown",
                    gap.kind.value if gap.kind is not None else "unknown",
                    share("share", gap.time if gap.kind is not None else None, gap.length),
                    _shortened(gap.event),
                )
            )
    return Table(
        "idle gaps",
        "The longest times in which a device did nothing",
        (
            Column("device", text=Text.WORD),
            Column("at", Unit.SECONDS),
            Column("length", Unit.SECONDS),
            Column("step"),
            Column("the host's", text=Text.WORD),
            Column("share", Unit.SHARE),
            Column("in", text=Text.NAME, spare=True),
        ),
        tuple(rows),
        "Those of a thousandth of the window and more. at: from the device's first work. the "
        "host's: what it spent most of the gap on, and which share. in: the innermost event that "
        "covers most of it.",
    )


def _shortened(event: str) -> str:
    return event if len(event) <= _SHORT else f"{event[: _SHORT - 3]}..."
