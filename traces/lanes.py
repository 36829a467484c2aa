"""What each lane of a device holds: its own work, or something derived of it.

Names alone do not say. ``XLA Ops`` is what a TPU measured, and on a GPU a copy of the
streams that a converter added; a stream is called ``Stream #2`` by one tracer,
``Stream #16(Kernel)`` by another. What a tracer recorded bears marks of it: a GPU's
kernels and copies the correlation with their launch, a TPU's operations the category
of their instruction, a CPU's the operation itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from hloscope.traces.recording import Lane

__all__ = ["STEP_NUMBER", "LaneKind", "lane_kind"]

STEP_NUMBER = re.compile(r"[0-9]{1,18}")
"""What a TPU's steps are called."""


class LaneKind(Enum):
    """What a lane's events are."""

    STREAM = "kernels and copies as a GPU ran them"
    OPERATIONS = "operations as a TPU's core ran them, nested"
    ASYNC = "transfers in flight beside a TPU's operations"
    MODULES = "executions of whole programs"
    STEPS = "steps"
    THREAD = "operations as a CPU's thread ran them, nested"
    HOST = "a thread of the host"
    DERIVED = "made of other lanes"
    UNKNOWN = "not understood"


_GPU_MARKS = (
    "correlation_id",
    "kernel_details",
    "memcpy_details",
    "memset_details",
    "Memset_details",
    "cuda_graph_id",
    "cuda_graph_exec_id",
)
_DERIVED = re.compile(
    r"(Steps|XLA Modules|XLA Ops|Async XLA Ops|XLA TraceMe|(Framework|TensorFlow) (Ops|Name Scope)"
    r"|Launch Stats|Source code|_counters_|CUPTI overhead)\b"
)
_COUNTERS = ("Syncs", "Tensor Core Sync Flag", "LLO Utilization")
_PROGRAM = re.compile(r"\S+\(-?\d+\)")
_IN_FLIGHT = re.compile(r"-(start|done)(\.\d+)?$|^(copy|slice|async|send|recv)-")
_MOST = 0.5
_LOOKED_AT = 2_000  # labels of one lane


def lane_kind(section: str, lane: Lane) -> LaneKind:
    """What a lane holds.

    Args:
        section: Name of its plane.
        lane: The lane.
    """
    if section.startswith("/device:GPU"):
        return _of_gpu(lane)
    if section.startswith("/device:TPU"):
        return _of_tpu(lane)
    if section.startswith("/host:CPU"):
        return LaneKind.THREAD if _is_of_cpu(lane) else LaneKind.HOST
    return LaneKind.UNKNOWN


def _is_of_cpu(lane: Lane) -> bool:
    """Whether operations ran on a host's thread itself.

    A launch names the operation, too, and correlates with what a device ran.
    """
    if "hlo_op" not in lane.stats.names() or lane.stats.share(_GPU_MARKS) > 0:
        return False
    lane.stats.fetch(("hlo_op", *_GPU_MARKS))
    launching = any(bool(lane.stats.present(name).any()) for name in _GPU_MARKS)
    return bool(lane.stats.present("hlo_op").any()) and not launching


def _of_gpu(lane: Lane) -> LaneKind:
    if lane.stats.share(_GPU_MARKS) > _MOST:
        return LaneKind.STREAM
    if _DERIVED.match(lane.name):
        return LaneKind.DERIVED
    # A tracer without correlations: its lanes still bear a stream's name.
    return LaneKind.STREAM if lane.name.startswith("Stream #") else LaneKind.UNKNOWN


def _of_tpu(lane: Lane) -> LaneKind:
    words = lane.labels.words[:_LOOKED_AT]
    name = lane.name.removeprefix("Sparse Core ")
    if name in _COUNTERS:
        return LaneKind.DERIVED
    if name == "Host Offload Ops":
        return LaneKind.ASYNC  # the host's, or copies to it: the core does other work
    if _most(_PROGRAM.fullmatch(word) for word in words):
        return LaneKind.MODULES
    if _most(STEP_NUMBER.fullmatch(word) for word in words):
        return LaneKind.STEPS
    if _most("hlo_category" in lane.about(code) for code in range(len(words))) or (
        lane.stats.share(("hlo_category",)) > _MOST
    ):
        if lane.name.startswith("Async") or _most(_IN_FLIGHT.search(word) for word in words):
            return LaneKind.ASYNC
        return LaneKind.OPERATIONS
    if name in ("XLA Ops", "Ops"):
        return LaneKind.OPERATIONS
    return LaneKind.DERIVED if _DERIVED.match(lane.name) else LaneKind.UNKNOWN


def _most(marks: Iterable[object]) -> bool:
    every = [bool(mark) for mark in marks]
    return bool(every) and sum(every) > _MOST * len(every)
