"""What a profiler lost: events over its limits, launches without their kernels.

A profiler keeps a limited number of events and drops the rest. It says so where it
notices; where it does not, launches of the host remain whose kernels are nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hloscope.chips import ChipKind
from hloscope.traces.lanes import LaneKind, lane_kind
from hloscope.traces.recording import Lane, Recording
from hloscope.traces.timeline import Device

__all__ = ["losses_of"]

# Calls that each put one kernel or one copy on a stream; some tracers call a launch what its
# kernel is called. Of a graph's launch nobody knows how many events follow, and other calls,
# which correlate too, have none.
_LAUNCH = re.compile(r"(cu|cuda|hip)\w*(Launch(Cooperative)?Kernel|Memcpy|Memset)\w*")
_PLANES = ("/host:CPU", "/host:CUPTI", "/host:ROCTRACER")
_NEGATIVE = re.compile(r"/device:(GPU|TPU):(?!\d)")
_DROPPED = re.compile(r"\bdropped\b")

# What JAX keeps of a GPU's events where nothing else is asked for.
_LIMIT = 2 * 1024 * 1024

# Share of launches below which what is missing may as well be at the edges.
_NOTABLE = 0.05
_FEW = 10
_SILENT = 0.1  # of the launches' time, without a device's event at its end


def losses_of(recording: Recording, devices: Sequence[Device]) -> tuple[str, ...]:
    """Sentences on events that a recording should have and has not.

    Args:
        recording: What one host recorded.
        devices: Those in it.
    """
    return tuple(_found(recording, devices))


def _found(recording: Recording, devices: Sequence[Device]) -> Iterator[str]:
    if any(_DROPPED.search(note) for note in recording.notes):
        yield "the profiler lost events: times and counts are too low"
    for section in recording.sections:
        dropped = section.stats.get("dropped_traces")
        if isinstance(dropped, int) and dropped > 0:
            yield f"{section.name}: {dropped:,} events were dropped: times and counts are too low"
        if _NEGATIVE.match(section.name):
            number = sum(map(len, section.lanes))
            yield f"{section.name}: no device has such a number, its {number:,} events are left out"
    for device in devices:
        if device.work.impossible:
            yield (
                f"{device.name}: {device.work.impossible:,} events have impossible correlations: "
                "taken as unknown"
            )
    gpus = [device for device in devices if device.kind is ChipKind.GPU]
    if sum(len(device.work) for device in gpus) in (_LIMIT, _LIMIT + 1):
        yield (
            f"the GPUs have {_LIMIT:,} events, which is all that the profiler keeps: the rest "
            "is missing (gpu_max_activity_api_events raises it)"
        )
    yield from _unmatched(recording, gpus)


def _unmatched(recording: Recording, gpus: Sequence[Device]) -> Iterator[str]:
    """Launches without an event of a device, and events without a launch."""
    kernels = frozenset(word for device in gpus for word in device.work.labels.words)
    calls = [
        _launches(lane, kernels)
        for section in recording.sections
        if section.name.startswith(_PLANES)
        for lane in section.lanes
        if lane_kind(section.name, lane) is not LaneKind.THREAD
    ]
    began = np.concatenate([begins for begins, _ in calls]) if calls else np.empty(0, np.int64)
    asked = np.concatenate([numbers for _, numbers in calls]) if calls else began
    ran = [device.work.correlations for device in gpus]
    known = np.concatenate(ran) if ran else asked[:0]
    if not len(asked) or not len(known):
        return
    answered = np.isin(asked, known)
    if answered.any():
        # What was launched last may not have run when the recording stopped.
        early = began < began[answered].max()
        holes = int(np.count_nonzero(early & ~answered))
        if holes > max(_FEW, _NOTABLE * np.count_nonzero(early)):
            yield (
                f"{holes:,} of {np.count_nonzero(early):,} launches have no kernel: "
                "events were lost, and times are too low"
            )
    ended = max(int(device.work.ends.max()) for device in gpus if len(device.work))
    silent = (began > ended) & ~answered
    last = int(began.max())
    long = last - ended > _SILENT * (last - int(began.min()))
    if long and np.count_nonzero(silent) > max(_FEW, _NOTABLE * len(asked)):
        yield (
            f"{np.count_nonzero(silent):,} launches at the end have no kernel: the devices' "
            "events stop before the recording does"
        )
    lone = int(np.count_nonzero((known > 0) & ~np.isin(known, asked)))
    # Kernels of a graph are many to one launch, which is none of those looked at.
    graphs = any(bool(device.work.graphs.any()) for device in gpus)
    if not graphs and lone > max(_FEW, _NOTABLE * len(known)) and answered.any():
        yield (
            f"{lone:,} of {len(known):,} events of GPUs have no launch: the host's events were "
            "lost, or not recorded"
        )


def _launches(lane: Lane, kernels: frozenset[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each launch of a lane began, and what its kernel is to be correlated with."""
    numbers, known = lane.stats.numbers("correlation_id")
    if known.any():
        words = lane.labels.words
        marks = np.asarray(
            [word in kernels or bool(_LAUNCH.fullmatch(word)) for word in words], np.bool_
        )
        known = known & (numbers > 0) & marks[lane.labels.codes]
    return lane.begins[known], numbers[known]
