"""Which chip a device of a recording is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hloscope import units
from hloscope.chips import CHIPS, Chip, ChipKind, chip_of_device_kind
from hloscope.traces.summary import DeviceSummary

__all__ = ["TracedChip", "chip_of_device"]

_NAMES = ("gpu_device_name", "device_type_string")
_SAME = 0.02  # drivers keep some of the memory for themselves

# Compute units and capability (its major and minor number are those of gfx942, gfx950) by chip:
# AMD's tracer writes no name.
_AMD: Mapping[str, tuple[int, int, int]] = {"mi300x": (9, 4, 304), "mi355x": (9, 5, 256)}


@dataclass(frozen=True, slots=True)
class TracedChip:
    """A chip, and how it is known.

    Attributes:
        chip: The chip; without peaks where it is not in the table.
        how: Where that comes from, in words.
    """

    chip: Chip
    how: str


def chip_of_device(device: DeviceSummary) -> TracedChip:
    """The chip of a device, from what the recording says of it.

    A name that the table has decides. Without a name a GPU is recognised by its compute
    units, its capability and its memory, where exactly one of the table has these. Of a
    chip that is not in the table the recording's own figures are taken: a TPU's peak and
    bandwidth, an NVIDIA GPU's bandwidth. That of an AMD GPU is not: a driver's figure, half
    of what the vendor states for an MI300X.
    """
    about = device.about
    if device.kind is ChipKind.CPU:
        return TracedChip(CHIPS["cpu"], "the processor; no figures of it are known")
    name = next((text for key in _NAMES if isinstance(text := about.get(key), str)), "")
    if name:
        known = _named(name)
        if known is not None:
            return TracedChip(known, f"the recording names it: {name}{_own_figures(about)}")
        return _unknown(device, name)
    found = _recognised(about)
    if found is not None:
        units = f"{about.get('core_count')} compute units"
        return TracedChip(found, f"inferred from {units} and the size of its memory")
    return _unknown(device, "")


def _named(name: str) -> Chip | None:
    """By name; profilers write ``TPU v5 Lite`` where JAX has ``TPU v5 lite``."""
    exact = chip_of_device_kind(name)
    if exact is not None:
        return exact
    for chip in CHIPS.values():
        if name.lower() in (kind.lower() for kind in chip.device_kinds):
            return chip
    return None


def _recognised(about: Mapping[str, object]) -> Chip | None:
    card = tuple(about.get(key) for key in ("compute_cap_major", "compute_cap_minor", "core_count"))
    memory = about.get("memory_size")
    if not isinstance(memory, int):
        return None
    vendor = str(about.get("device_vendor", "")).lower()
    found = [
        chip
        for chip in CHIPS.values()
        if chip.vendor.lower() == vendor
        and _card_of(chip) == card
        and chip.memory_bytes is not None
        and abs(memory - chip.memory_bytes) <= _SAME * chip.memory_bytes
    ]
    return found[0] if len(found) == 1 else None


def _card_of(chip: Chip) -> tuple[int, int, int] | None:
    if chip.gpu is None:
        return _AMD.get(chip.name)
    return (*chip.gpu.compute_capability, chip.gpu.core_count)


def _unknown(device: DeviceSummary, name: str) -> TracedChip:
    """A chip that is not in the table, with the figures that the recording itself gives."""
    about = device.about
    peaks = {}
    bandwidth: float | None = None
    if device.kind is ChipKind.TPU:
        peak = _positive(about.get("peak_teraflops_per_second"))
        if peak is not None:
            peaks["bf16"] = peak * 1e12
        hbm = _positive(about.get("peak_hbm_bw_gigabytes_per_second"))
        bandwidth = hbm * 1e9 if hbm is not None else None
    elif str(about.get("device_vendor", "")).lower() == "nvidia":
        bandwidth = _positive(about.get("memory_bandwidth"))
    title = name or f"a {device.kind.value.upper()} that the recording does not name"
    chip = Chip(
        name=name or f"unknown {device.kind.value.upper()}",
        vendor=str(about.get("device_vendor", "unknown")),
        kind=device.kind,
        title=title,
        peaks=MappingProxyType(peaks),
        memory_bandwidth=bandwidth,
        sources=("the recording",),
    )
    said = "its figures are the recording's own" if peaks or bandwidth else "no figures are known"
    return TracedChip(chip, f"not in hloscope's table; {said}")


def _own_figures(about: Mapping[str, object]) -> str:
    """What the recording itself takes the chip's peaks to be, where it says so."""
    found = []
    peak = _positive(about.get("peak_teraflops_per_second"))
    if peak is not None:
        found.append(f"{units.three_digits(peak)} TFLOP/s")
    hbm = _positive(about.get("peak_hbm_bw_gigabytes_per_second"))
    if hbm is not None:
        found.append(f"{units.three_digits(hbm)} GB/s")
    return f", with {' and '.join(found)}" if found else ""


def _positive(value: object) -> float | None:
    """A figure, as far as it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e18 else None
