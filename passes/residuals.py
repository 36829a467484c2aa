"""What a training step keeps from its forward pass for its backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hloscope.ir import Instruction
from hloscope.passes.buffer_kinds import (
    BufferKind,
    BufferKinds,
    Phase,
    named_origin,
    phase_of,
)
from hloscope.passes.buffers import Buffer
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space
from hloscope.passes.residual_makers import Made, made_by
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.analyses import analysis

__all__ = ["Residual", "Residuals", "find_residuals"]


@dataclass(frozen=True, slots=True)
class Residual:
    """One array that is written in the forward pass and read in the backward pass.

    Attributes:
        buffer: Where it lies.
        made: What computed its values, and which loop stacked them.
        at_peak: Whether it lives at the program's peak, and nothing has written over it.
    """

    buffer: Buffer
    made: Made
    at_peak: bool

    @property
    def origin(self) -> Instruction:
        """The forward instruction, with its op_name and line."""
        return self.made.maker

    @property
    def is_argument(self) -> bool:
        """Whether it is only a copy, a cast or a part of an argument of the program."""
        return self.made.argument is not None


@dataclass(frozen=True)
class Residuals:
    """All of them, in the order in which they are written; arguments themselves are none."""

    residuals: tuple[Residual, ...]

    @cached_property
    def _by_buffer(self) -> Mapping[Buffer, Residual]:
        return {residual.buffer: residual for residual in self.residuals}

    def of(self, buffer: Buffer | None) -> Residual | None:
        """The residual that lies in a buffer, if one does."""
        return self._by_buffer.get(buffer) if buffer is not None else None

    @property
    def total(self) -> int:
        """Bytes of all, whether or not they live at the same time."""
        return sum(residual.buffer.size for residual in self.residuals)

    @property
    def on_device(self) -> int:
        """Bytes of those that are not in the host's memory."""
        return sum(r.buffer.size for r in self.residuals if r.buffer.space is not Space.HOST)

    @property
    def at_peak(self) -> int:
        """Bytes of those that live at the program's peak, in the device's memory."""
        return sum(
            residual.buffer.size
            for residual in self.residuals
            if residual.at_peak and residual.buffer.space is Space.DEVICE
        )


@analysis
def find_residuals(ranges: LiveRanges, kinds: BufferKinds, trips: TripCounts) -> Residuals:
    """Collect what crosses from forward to backward in any computation that runs.

    Raises:
        Unavailable: The module is not scheduled.
    """
    alive = {
        buffer
        for space in Space
        for reached in [{f.computation: where for f, where in ranges.stack(space)}]
        for buffer in ranges.alive(space)
        if _is_held(buffer, reached.get(buffer.instruction.computation))
    }
    return Residuals(
        tuple(
            Residual(
                buffer,
                made_by(buffer, ranges.table if frame is ranges.entry else None, trips),
                buffer in alive,
            )
            for frame in reversed(ranges.frames)
            for buffer in (*frame.buffers, *frame.lent)
            if kinds[buffer] is BufferKind.RESIDUAL
        )
    )


def _is_held(buffer: Buffer, position: int | None) -> bool:
    """Whether what the forward pass wrote is still there: the backward pass may write over it."""
    return position is None or not any(
        writer.index <= position
        and writer.opcode != "while"
        and phase_of(named_origin(writer).op_name) is Phase.BACKWARD
        for writer in buffer.writers
    )
