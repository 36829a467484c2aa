"""The host beside its devices: which thread drives them, its budget, and who sets the pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hloscope.traces.host_budget import HostBudget, budget_of
from hloscope.traces.host_pace import (
    DevicePace,
    Lead,
    bound_of,
    calls_of_steps,
    launched_at,
    leads_of,
)
from hloscope.traces.host_threads import Calls, HostThread, calls_of, driving_thread
from hloscope.traces.host_timeline import HostTimeline, timeline_of
from hloscope.traces.idle_gaps import longest_gaps
from hloscope.traces.intervals import Intervals, union_of
from hloscope.traces.launches import Launches
from hloscope.traces.recording import Recording
from hloscope.traces.steps import Steps, longest_program
from hloscope.traces.timeline import Device
from hloscope.traces.windows import Window

__all__ = ["Beside", "host_side"]


@dataclass(frozen=True)
class Beside:
    """A device as its host is seen beside it.

    Attributes:
        device: The device.
        steps: Its steps.
        window: The window that counts.
        gaps: When it did nothing in that.
    """

    device: Device
    steps: Steps
    window: Window
    gaps: Intervals

    @cached_property
    def program(self) -> str:
        """The module that it ran longest."""
        return longest_program(self.device)


def host_side(
    recording: Recording, devices: Sequence[Beside], launches: Launches
) -> tuple[HostBudget | None, tuple[DevicePace, ...]]:
    """The host's budget, ``None`` where no thread is known to drive it, and each device's pace.

    Args:
        recording: Of the host.
        devices: Those that did something.
        launches: Of the host.
    """
    if not devices:
        return None, ()
    first = max(devices, key=lambda each: each.device.busy.total)
    thread = driving_thread(recording, first.program)
    if thread is None:
        return None, tuple(_pace(launches, each, None, None) for each in devices)
    timeline = timeline_of(thread, union_of(each.device.busy for each in devices))
    calls, _ = calls_of_steps(calls_of(thread, first.program), first.steps, thread)
    window = _window(thread, calls, first, devices)
    budget = budget_of(
        thread, timeline, window, first.program, calls, [step.number for step in first.steps.rows]
    )
    return budget, tuple(_pace(launches, each, thread, timeline) for each in devices)


def _window(
    thread: HostThread, calls: Calls | None, first: Beside, devices: Sequence[Beside]
) -> Window:
    """From where the host began the first step that counts to where both ended the last."""
    begin = min(each.window.begin for each in devices)
    end = max(each.window.end for each in devices)
    rows = first.steps.rows
    window = first.window
    counted = [n for n, row in enumerate(rows) if window.holds(row)]
    of_host = thread.steps if thread.steps is not None else calls
    if counted and of_host is not None and len(of_host.begins) == len(rows):
        begin = min(begin, int(of_host.begins[counted[0]]))
        end = max(end, int(of_host.ends[counted[-1]]))
    return Window(begin, end, window.name)


def _pace(
    launches: Launches,
    beside: Beside,
    thread: HostThread | None,
    timeline: HostTimeline | None,
) -> DevicePace:
    idle = timeline.within(beside.gaps) if timeline is not None else {}
    busy = beside.window.length - beside.gaps.total
    bound, reason = bound_of(idle, busy, beside.window.length)
    calls: Calls | None = None
    unknown = "no thread of the host is known to drive it"
    if thread is not None:
        found = calls_of(thread, beside.program)
        calls, unknown = calls_of_steps(found, beside.steps, thread)
    leads: tuple[Lead, ...] = ()
    waits = 0
    if calls is not None and thread is not None:
        rows = beside.steps.rows
        launched = launched_at(launches, beside.device, rows, calls)
        every, behind = leads_of(beside.steps, beside.gaps, calls, launched, thread)
        inside = [beside.window.holds(step) for step in rows]
        leads = tuple(lead for lead, counted in zip(every, inside, strict=True) if counted)
        # The gap behind a step lies in the window where the next step does, too.
        waits = sum(gap for gap, counted in zip(behind, inside[1:], strict=True) if counted)
    return DevicePace(
        bound=bound,
        reason=reason,
        idle=idle,
        leads=leads,
        unknown=unknown,
        waits=waits,
        gaps=longest_gaps(beside.gaps, beside.steps, thread, timeline),
    )
