"""Cells that the tables of a trace have in common."""

from __future__ import annotations

from hloscope.pipeline.findings import Basis, Quantity, Unit
from hloscope.traces.summary import DeviceSummary, Trace

__all__ = ["PS", "device_name", "seconds", "share"]

PS = 1e-12
"""Seconds of a picosecond, in which recordings count."""


def seconds(name: str, picoseconds: int | float | None, model: str | None = None) -> Quantity:
    """A time; ``None`` for one that is not known."""
    if picoseconds is None:
        return Quantity(name, None, Unit.SECONDS, Basis.UNKNOWN)
    basis = Basis.EXACT if model is None else Basis.MODELLED
    return Quantity(name, picoseconds * PS, Unit.SECONDS, basis, model)


def share(name: str, part: float | None, whole: float, model: str | None = None) -> Quantity:
    """A part of a whole; unknown of nothing."""
    if part is None or not whole:
        return Quantity(name, None, Unit.SHARE, Basis.UNKNOWN)
    basis = Basis.EXACT if model is None else Basis.MODELLED
    return Quantity(name, part / whole, Unit.SHARE, basis, model)


def device_name(trace: Trace, device: DeviceSummary) -> str:
    """``GPU 0``, with its host before it where there are several."""
    return f"{device.host} {device.name}" if len(trace.hosts) > 1 else device.name
