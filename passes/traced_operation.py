"""What one instruction, and one program, reached on the devices that ran it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hloscope.chips import Chip
from hloscope.ir import Instruction
from hloscope.passes.flops.counts import Count
from hloscope.passes.roofline import Bound, RooflineRow
from hloscope.passes.traced_executions import Runs
from hloscope.pipeline.findings import Basis
from hloscope.traces.kernel_instructions import Link

__all__ = ["PROFILED_AT", "TracedOperation", "TracedProgram"]

PROFILED_AT = "bf16"
"""The peak that FLOPs are held against which a TPU's profiler counts: it names no types."""

_PS = 1e-12


@dataclass(frozen=True)
class TracedOperation:
    """One instruction on all devices that ran it, in their windows.

    Attributes:
        module: Name of its program.
        name: The instruction's.
        link: How it is known which instruction the kernels are of.
        chip: The chip that ran it.
        time: Time of its kernels by themselves, in picoseconds, over all devices.
        elapsed: Time in which any of its kernels ran, over all devices.
        kernels: Kernels that ran.
        labels: Names of these.
        executions: How often it ran.
        instruction: It itself, where its program is at hand.
        row: What it takes at least, where it does something that can be told.
        counts: Its products, those that are part of it in a fusion too.
        profiler_flops: FLOPs of all executions as the profiler counts them; ``None`` where
            it does not.
        profiler_bytes: Bytes of all executions, the same way.
    """

    module: str
    name: str
    link: Link
    chip: Chip
    time: int
    elapsed: int
    kernels: int
    labels: tuple[str, ...]
    executions: Runs
    instruction: Instruction | None = None
    row: RooflineRow | None = None
    counts: tuple[Count, ...] = ()
    profiler_flops: int | None = None
    profiler_bytes: int | None = None

    @property
    def is_control(self) -> bool:
        """Whether it only holds others: a loop, a call, a branch."""
        return self.instruction is not None and self.instruction.opcode in (
            "while",
            "call",
            "conditional",
        )

    @property
    def seconds(self) -> float | None:
        """Of one execution, on average."""
        number = self.executions.number
        return self.elapsed * _PS / number if number and self.elapsed else None

    @property
    def flop_rate(self) -> float | None:
        """FLOPs of its products a second; pairs that a mask hides are none."""
        if self.row is not None:
            return self._rate(self.row.flops)
        return self._profiled(self.profiler_flops)

    @property
    def byte_rate(self) -> float | None:
        """Bytes of device memory a second."""
        if self.row is not None:
            return self._rate(self.row.moved_bytes)
        return self._profiled(self.profiler_bytes)

    @property
    def of_peak(self) -> float | None:
        """Share of the chip's peak that its products reach, each type's at its own peak.

        FLOPs that a TPU's profiler counts are held against the peak in bfloat16.
        """
        if self.row is None:
            rate, peak = self._profiled(self.profiler_flops), self.chip.peaks.get(PROFILED_AT)
            return rate / peak if rate is not None and peak else None
        if not self.row.flops or not self.row.compute or not self.seconds:
            return None
        return self.row.compute / self.seconds

    @property
    def of_bandwidth(self) -> float | None:
        """Share of the bandwidth of the chip's memory.

        A profiler's own bytes are of all kinds of memory: they say nothing of one of them.
        """
        if self.row is None or not self.row.memory or not self.seconds:
            return None
        return self.row.memory / self.seconds

    @property
    def of_roof(self) -> float | None:
        """Share of the rate that bounds it: its floor on the roofline by the time it took."""
        if self.row is None or not self.row.seconds or not self.seconds or self.row.unknown:
            return None
        return self.row.seconds / self.seconds

    @property
    def bound(self) -> Bound:
        """What bounds it on the roofline."""
        return self.row.bound if self.row is not None else Bound.UNKNOWN

    @property
    def is_above_peak(self) -> bool:
        """Whether its products were faster than the chip can multiply."""
        return (self.of_peak or 0.0) > 1.0

    @property
    def is_above_bandwidth(self) -> bool:
        """Whether more bytes were moved than the chip's memory can."""
        return (self.of_bandwidth or 0.0) > 1.0

    @property
    def models(self) -> tuple[str, ...]:
        """What its achieved FLOP/s rest on beside what was counted and measured exactly."""
        found = [count.model for count in self.counts if count.basis is Basis.MODELLED]
        found += ["masked pairs left out" for c in self.counts if c.masked_flops is not None]
        return tuple(dict.fromkeys([*found, *self.execution_models]))

    @property
    def execution_models(self) -> tuple[str, ...]:
        """The same of its achieved bytes a second."""
        if self.row is None and (self.profiler_flops or self.profiler_bytes) is not None:
            return ("the profiler's own count",)
        found = [] if self.executions.exact else ["runs inferred"]
        if self.link is Link.BY_NAME:
            found.append("joined by kernel name")
        return tuple(found)

    def _rate(self, amount: int | None) -> float | None:
        return amount / self.seconds if amount is not None and self.seconds else None

    def _profiled(self, amount: int | None) -> float | None:
        """Of the profiler's own counts: one that knows neither FLOPs nor bytes has zeros."""
        if not self.elapsed or not (self.profiler_flops or self.profiler_bytes):
            return None
        return amount / (self.elapsed * _PS) if amount is not None else None


@dataclass(frozen=True)
class TracedProgram:
    """One program on all devices that ran it.

    Attributes:
        name: Of its module.
        chip: The chip that it is held against.
        devices: How many ran it.
        runs: How often they did, all together.
        flops: FLOPs of its products in the windows, those that a mask hides left out.
        peak_seconds: Seconds of these at the chip's peak, each type's at its own.
        recomputed_seconds: The part of them that compute something again.
        units: Seconds at peak by the chip's peak that products are held against.
        uncounted: Why the FLOPs of some products are in no sum, each reason once.
        unrated: Why some are not in the seconds.
        inferred: Whether it is inferred how often some product ran.
        profiled: Whether the FLOPs are the profiler's own count.
    """

    name: str
    chip: Chip
    devices: int
    runs: Runs
    flops: int
    peak_seconds: float
    recomputed_seconds: float
    units: Mapping[str, float]
    uncounted: tuple[str, ...] = ()
    unrated: tuple[str, ...] = ()
    inferred: bool = False
    profiled: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Why the seconds are those of a part only."""
        return (*self.uncounted, *self.unrated)
