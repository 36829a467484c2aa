"""FLOPs and bytes of each operation of a TPU as its profiler counts them itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.chips import ChipKind
from hloscope.traces.lanes import LaneKind, lane_kind
from hloscope.traces.recording import Lane, Recording
from hloscope.traces.timeline import Device

__all__ = ["ProfilerCounts", "profiler_counts"]

_FLOPS = ("model_flops", "flops")
_BYTES = ("bytes_accessed", "raw_bytes_accessed")
_MOST = 1 << 53  # more than this one operation does not do: what says so is garbage


@dataclass(frozen=True, slots=True)
class ProfilerCounts:
    """What the profiler says of each event of a device.

    Attributes:
        flops: FLOPs; those of the model where it tells them from the device's own.
        flops_known: Which events say so.
        moved: Bytes read and written, in all kinds of memory.
        moved_known: Which events say so.
    """

    flops: NDArray[np.int64]
    flops_known: NDArray[np.bool_]
    moved: NDArray[np.int64]
    moved_known: NDArray[np.bool_]

    def only(self, events: NDArray[np.int64]) -> ProfilerCounts:
        """The same of some events."""
        return ProfilerCounts(
            self.flops[events],
            self.flops_known[events],
            self.moved[events],
            self.moved_known[events],
        )


def profiler_counts(recording: Recording, device: Device) -> ProfilerCounts | None:
    """What a TPU's profiler counted; ``None`` of other devices, and where it did not.

    Args:
        recording: What the device is from.
        device: The device.
    """
    if device.kind is not ChipKind.TPU:
        return None
    lanes = [
        lane
        for section in recording.sections
        if re.match(rf"/device:TPU:{device.number}\b", section.name)
        for lane in section.lanes
        if lane.name in device.lanes and lane_kind(section.name, lane) is LaneKind.OPERATIONS
    ]
    if sum(map(len, lanes)) != len(device.work):
        return None
    flops, flops_known = _column(lanes, _FLOPS)
    moved, moved_known = _column(lanes, _BYTES)
    if not flops_known.any() and not moved_known.any():
        return None
    return ProfilerCounts(flops, flops_known, moved, moved_known)


def _column(
    lanes: Sequence[Lane], names: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The first of some stats that an event has: its own, else that of all of its label."""
    values, known = [], []
    for lane in lanes:
        found = np.zeros(len(lane), np.int64)
        having = np.zeros(len(lane), np.bool_)
        for name in names:
            for number, said in (lane.stats.numbers(name), _of_labels(lane, name)):
                new = said & ~having & (number >= 0) & (number < _MOST)
                found = np.where(new, number, found)
                having |= new
        values.append(found)
        known.append(having)
    return np.concatenate(values), np.concatenate(known)


def _of_labels(lane: Lane, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    said = [lane.about(code).get(name) for code in range(len(lane.labels.words))]
    numbers = [each if isinstance(each, int) and abs(each) < _MOST else -1 for each in said]
    column = np.asarray(numbers, np.int64)[lane.labels.codes]
    return column, column >= 0
