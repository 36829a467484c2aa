"""What the rules about a recording have in common: shares of a window, and where they arose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Basis, Quantity, Severity, Site, Unit
from hloscope.pipeline.rules import Limits
from hloscope.traces.host_budget import HostBudget, HostCalls
from hloscope.traces.host_kinds import HostKind, place_of
from hloscope.traces.host_pace import Bound, DevicePace
from hloscope.traces.summary import DeviceSummary, HostSummary, Trace

__all__ = [
    "PS",
    "IdleCause",
    "busiest",
    "called_from",
    "counted_steps",
    "driven_hosts",
    "every_step",
    "idle_in",
    "per_step",
    "severity_of_host_time",
    "severity_of_idle",
    "site_of_frame",
    "window_share",
]

PS = 1e-12
"""Seconds of a picosecond, in which recordings count."""

_EVERY = 0.9  # of the steps, from which something is said to come in every one


@dataclass(frozen=True)
class IdleCause:
    """Idle time of a device in which its host did certain things.

    Attributes:
        host: The device's host.
        device: The device.
        pace: Its pace.
        times: The time by what the host did, in picoseconds.
        steps: Steps of the device in the window; 0 where none is known.
    """

    host: HostSummary
    device: DeviceSummary
    pace: DevicePace
    times: dict[HostKind, int]
    steps: int

    @property
    def time(self) -> int:
        """All of it."""
        return sum(self.times.values())

    @property
    def share(self) -> float:
        """Of the window."""
        length = self.device.windows.chosen.length
        return self.time / length if length else 0.0

    @property
    def first(self) -> HostKind:
        """What most of it is."""
        return max(self.times, key=self.times.__getitem__)


def driven_hosts(trace: Trace) -> list[tuple[HostSummary, HostBudget]]:
    """Hosts of which the thread is known that drives the devices.

    Raises:
        Unavailable: None is.
    """
    found = [(host, host.budget) for host in trace.hosts if host.budget is not None]
    if not found:
        raise Unavailable("the trace shows no thread of the host that drives its devices")
    return found


def idle_in(trace: Trace, kinds: Iterable[HostKind]) -> IdleCause | None:
    """The device that was idle longest while its host did some of these; ``None`` of none.

    Devices that run no step count only where none does, as they only pass on copies. Where
    the host is ahead of a device by a step or more, that device does not wait for it.

    Raises:
        Unavailable: No thread of a host is known to drive a device.
    """
    wanted = tuple(kinds)
    driven_hosts(trace)
    paced = [
        (host, device, device.pace)
        for host in trace.hosts
        for device in host.devices
        if device.pace is not None
    ]
    stepping = [each for each in paced if each[1].steps.rows]
    causes = []
    for host, device, pace in stepping or paced:
        times = {kind: pace.idle[kind] for kind in wanted if kind in pace.idle}
        if times and not pace.runs_ahead:
            causes.append(IdleCause(host, device, pace, times, counted_steps(device)))
    return max(causes, key=lambda cause: cause.share, default=None)


def counted_steps(device: DeviceSummary) -> int:
    """Steps of a device in the chosen window."""
    return len(device.windows.chosen.steps(device.steps))


def busiest(host: HostSummary) -> DeviceSummary:
    """The device of a host that worked most."""
    return max(host.devices, key=lambda device: device.parts.busy)


def every_step(number: int, steps: int) -> bool:
    """Whether something comes in every step, a first or last one perhaps left out."""
    return steps >= 2 and number >= _EVERY * steps


def per_step(name: str, time: int, steps: int, model: str | None = None) -> Quantity:
    """A time a step, or of the whole window where steps are not known.

    Args:
        name: What it is the time of.
        time: In picoseconds.
        steps: In which it was spent; 0 where that is not known.
        model: Why it is the most that it can be; exact where left out.
    """
    basis = Basis.EXACT if model is None else Basis.BOUNDED
    if not steps:
        return Quantity(name, time * PS, Unit.SECONDS, basis, model)
    return Quantity(f"{name} a step", time * PS / steps, Unit.SECONDS, basis, model)


def window_share(share: float, model: str | None = None) -> Quantity:
    """A share of the window."""
    basis = Basis.EXACT if model is None else Basis.BOUNDED
    return Quantity("share of the window", share, Unit.SHARE, basis, model)


def severity_of_idle(cause: IdleCause, limits: Limits) -> Severity:
    """How much idle time matters: a note where the device sets the pace all the same."""
    bound = cause.pace.bound is Bound.DEVICE
    return Severity.NOTE if bound else limits.severity(cause.share)


def severity_of_host_time(share: float, host: HostSummary, limits: Limits) -> Severity:
    """How much time of the host matters: a note while it runs ahead of its devices."""
    bounds = [device.pace.bound for device in host.devices if device.pace is not None]
    if bounds and all(bound is Bound.DEVICE for bound in bounds):
        return Severity.NOTE
    return limits.severity(share)


def site_of_frame(name: str) -> Site:
    """Where a frame of Python stands: its file, without the folder, and its first line."""
    place = place_of(name)
    return Site() if place is None else Site(file=place[0], line=place[1])


def called_from(calls: HostCalls) -> tuple[str, ...]:
    """Of what most of the time of some calls is, and in which function, in one note."""
    if not calls.event:
        return ()
    inside = f", in {calls.caller.rpartition(' ')[2]}" if calls.caller else ""
    return (f"mostly {_readable(calls.event)}{inside}",)


def _readable(event: str) -> str:
    """A frame as a function and its file: ``device_put (api.py)``."""
    place = place_of(event)
    return event if place is None else f"{event.rpartition(' ')[2]} ({place[0]})"
