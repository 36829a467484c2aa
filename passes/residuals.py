"""What a training step keeps from its forward pass for its backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.passes.buffer_kinds import BufferKind, BufferKinds, named_origin
from hloscope.passes.buffers import Buffer
from hloscope.passes.live_ranges import Frame, LiveRanges
from hloscope.passes.memory_spaces import Space
from hloscope.pipeline.analyses import analysis

__all__ = ["Residual", "Residuals", "find_residuals", "frames_of"]


@dataclass(frozen=True, slots=True)
class Residual:
    """One array that is written in the forward pass and read in the backward pass.

    Attributes:
        buffer: Where it lies.
        origin: The forward instruction, with its op_name and line.
        at_peak: Whether it lives at the program's peak.
    """

    buffer: Buffer
    origin: Instruction
    at_peak: bool


@dataclass(frozen=True, slots=True)
class Residuals:
    """All of them, in the order in which they are written; arguments are none."""

    residuals: tuple[Residual, ...]

    @property
    def total(self) -> int:
        """Bytes of all, whether or not they live at the same time."""
        return sum(residual.buffer.size for residual in self.residuals)

    @property
    def at_peak(self) -> int:
        """Bytes of those that live at the program's peak, in the device's memory."""
        return sum(
            residual.buffer.size
            for residual in self.residuals
            if residual.at_peak and residual.buffer.space is Space.DEVICE
        )


@analysis
def find_residuals(ranges: LiveRanges, kinds: BufferKinds) -> Residuals:
    """Collect what crosses from forward to backward in any computation that runs.

    Raises:
        Unavailable: The module is not scheduled.
    """
    alive = {id(buffer) for space in Space for buffer in ranges.alive(space)}
    return Residuals(
        tuple(
            Residual(buffer, _origin(buffer), id(buffer) in alive)
            for frame in frames_of(ranges.entry)
            for buffer in frame.buffers
            if kinds[buffer] is BufferKind.RESIDUAL
        )
    )


def frames_of(entry: Frame) -> Iterator[Frame]:
    """Every frame once, the entry's first."""
    seen: set[int] = set()
    pending = [entry]
    while pending:
        frame = pending.pop()
        if id(frame) in seen:
            continue
        seen.add(id(frame))
        yield frame
        pending += [callee for running in frame.calls.values() for callee in running]
        pending += [callee for _, _, callee in frame.beside]


def _origin(buffer: Buffer) -> Instruction:
    """Of an array that a loop fills, the fill comes first; its name is the loop's scope."""
    return named_origin(buffer.instruction)
