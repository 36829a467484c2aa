"""How kernels were launched, beside the time that they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hloscope.pipeline.findings import Basis, Column, Quantity, Text, Unit
from hloscope.traces.kernel_details import KernelLaunch
from hloscope.traces.kernel_families import family_of
from hloscope.traces.summary import Trace

__all__ = ["LAUNCH_NOTE", "kernel_title", "launch_cells", "launch_columns", "launches_of"]

LAUNCH_NOTE = "registers, shared memory: of the launch that most of a kernel's events have."


def kernel_title(name: str) -> str:
    """What people call a kernel: of a C++ name the function, without arguments and templates.

    Args:
        name: As the tracer has it.
    """
    if "<" in name or "(" in name:
        return family_of(name)
    return name.removesuffix(".kd")


def launches_of(trace: Trace) -> dict[str, Counter[KernelLaunch]]:
    """How often each kernel was launched in which way, on all devices in all of the time."""
    found: dict[str, Counter[KernelLaunch]] = {}
    for device in trace.devices:
        for name, launches in device.kernels.launches.items():
            found.setdefault(name, Counter()).update(dict(launches))
    return found


def launch_columns(launches: Mapping[str, Counter[KernelLaunch]]) -> tuple[Column, ...]:
    """Heads of what ``launch_cells`` gives; of what no kernel says, none is drawn."""
    every = [launch for found in launches.values() for launch in found]
    return (
        Column(
            "registers",
            Unit.COUNT,
            spare=True,
            drawn=any(each.registers is not None for each in every),
        ),
        Column(
            "shared memory",
            Unit.BYTES,
            spare=True,
            drawn=any(each.shared_bytes is not None for each in every),
        ),
        Column("scratch memory", Unit.BYTES, drawn=False),
        Column("occupancy", Unit.SHARE, drawn=False),
        Column("block", text=Text.WORD, drawn=False),
        Column("grid", text=Text.WORD, drawn=False),
        Column("different launches", Unit.COUNT, drawn=False),
    )


def launch_cells(launches: Counter[KernelLaunch] | None) -> tuple[str | Quantity, ...]:
    """What is known of a kernel's launches.

    Args:
        launches: Of one kernel; ``None`` where nothing is known.
    """
    ((usual, _),) = launches.most_common(1) if launches else ((KernelLaunch(), 0),)
    return (
        _known("registers", usual.registers, Unit.COUNT),
        _known("shared memory", usual.shared_bytes, Unit.BYTES),
        _known("scratch memory", usual.private_bytes, Unit.BYTES),
        _known("occupancy", None if usual.occupancy is None else usual.occupancy / 100, Unit.SHARE),
        _three(usual.block),
        _three(usual.grid),
        _known("different launches", len(launches) if launches else None, Unit.COUNT),
    )


def _known(name: str, value: float | None, unit: Unit) -> Quantity:
    return Quantity(name, value, unit, Basis.UNKNOWN if value is None else Basis.EXACT)


def _three(numbers: tuple[int, int, int] | None) -> str:
    return "unknown" if numbers is None else "x".join(map(str, numbers))
