"""The steps of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hloscope.answers.trace_cells import device_name, seconds
from hloscope.pipeline.findings import Column, Quantity, Table, Text, Unit
from hloscope.traces.steps import Step, StepSource
from hloscope.traces.summary import DeviceSummary, Trace

__all__ = ["step_summary", "step_table"]


def step_table(trace: Trace, top: int) -> Table:
    """Each step of each device: how long it took, worked, waited, and kept the host.

    Args:
        trace: The run.
        top: Rows of each device at most; 0 for all.
    """
    rows: list[tuple[str | Quantity, ...]] = []
    for device in trace.devices:
        counted = frozenset(device.windows.chosen.steps(device.steps))
        rows += [
            (
                device_name(trace, device),
                str(step.number),
                seconds("wall", step.wall),
                seconds("busy", step.busy),
                seconds("gap before", step.gap),
                seconds("host", step.host),
                "" if step in counted else "no",
            )
            for step in device.steps.rows[: top or None]
        ]
    left = sum(max(len(device.steps.rows) - top, 0) for device in trace.devices) if top else 0
    return Table(
        "steps",
        f"Steps: {_sources(trace)}",
        (
            Column("device", text=Text.WORD),
            Column("step", text=Text.WORD),
            Column("wall", Unit.SECONDS),
            Column("busy", Unit.SECONDS),
            Column("gap before", Unit.SECONDS),
            Column("host", Unit.SECONDS),
            Column("counted"),
        ),
        tuple(rows),
        (f"{left:,} more; --top 0 lists all. " if left else "")
        + "gap before: idle time since the step before. host: its time inside of the annotation. "
        "counted: whether it is in the window.",
    )


def step_summary(trace: Trace) -> Table:
    """One line a device: how many steps, and the usual one."""
    every = [(device, device.windows.chosen.steps(device.steps)) for device in trace.devices]
    return Table(
        "steps of each device",
        f"Steps: {_sources(trace)}",
        (
            Column("device", text=Text.WORD),
            Column("steps", Unit.COUNT),
            Column("median wall", Unit.SECONDS),
            Column("shortest", Unit.SECONDS),
            Column("longest", Unit.SECONDS),
            Column("median gap", Unit.SECONDS),
        ),
        tuple(_row(trace, device, found) for device, found in every if found),
        "Of the steps in the window; --steps lists each.",
    )


def _row(trace: Trace, device: DeviceSummary, steps: Sequence[Step]) -> tuple[str | Quantity, ...]:
    walls = [step.wall for step in steps]
    gaps = [step.gap for step in steps[1:]]
    return (
        device_name(trace, device),
        Quantity("steps", len(walls)),
        seconds("median wall", median(walls)),
        seconds("shortest", min(walls)),
        seconds("longest", max(walls)),
        seconds("median gap", median(gaps) if gaps else None),
    )


def _sources(trace: Trace) -> str:
    found = dict.fromkeys(d.steps.source for d in trace.devices if d.steps.rows)
    return " and ".join(source.value for source in found) or StepSource.NONE.value
