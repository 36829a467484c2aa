"""What launching takes beside the work, in loops that launch much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.chips import ChipKind
from hloscope.errors import Unavailable
from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import CallKind
from hloscope.passes.execution import Execution
from hloscope.passes.roofline import Roofline
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.analyses import analysis

__all__ = ["LAUNCH_SECONDS", "LoopLaunches", "LoopRow", "find_loop_launches"]

LAUNCH_SECONDS = 1e-6
"""What a GPU takes at least from one kernel to the next, in seconds.

XLA's own cost model of GPUs counts this much for each kernel
(``kKernelLaunchOverhead`` in xla/service/gpu/model/gpu_performance_model_base.h;
earlier versions counted 5 microseconds). Without CUDA graphs it is several
times that.
"""

_RECORD = "known_trip_count"


@dataclass(frozen=True, slots=True)
class LoopRow:
    """One loop that is not inside another.

    Attributes:
        loop: Its ``while``.
        launches: Kernels that it launches in one step, inner loops included.
        work: Seconds of the work of these on the roofline, in one step.
        overhead: Seconds that launching takes beyond the work in one step: of each
            launch what is missing to :data:`LAUNCH_SECONDS`.
        dearest: The innermost loop with most of the overhead; often ``loop`` itself.
        launch: A launch in it that has a line of Python, if one has.
    """

    loop: Instruction
    launches: int
    work: float
    overhead: float
    dearest: Instruction
    launch: Instruction | None


@dataclass(frozen=True, slots=True)
class LoopLaunches:
    """The launches of a step, and those in loops.

    Attributes:
        loops: Outermost loops, those with most overhead first.
        launches: Launches in one step, loops multiplied, nominally.
        seconds: What the step takes at least: the roofline of each launch or
            :data:`LAUNCH_SECONDS`, whichever is longer.
    """

    loops: Sequence[LoopRow]
    launches: int
    seconds: float


@dataclass(slots=True)
class _Sums:
    launches: int = 0
    work: float = 0.0
    overhead: float = 0.0

    def add(self, runs: int, seconds: float) -> None:
        self.launches += runs
        self.work += runs * seconds
        self.overhead += runs * max(LAUNCH_SECONDS - seconds, 0.0)


@analysis
def find_loop_launches(execution: Execution, trips: TripCounts, roofline: Roofline) -> LoopLaunches:
    """Hold the work of each launch against what launching takes; linear.

    Launches that run beside others are left out, as are those of which nothing
    is known. A condition is launched only where XLA does not know how often the
    loop runs.

    Raises:
        Unavailable: The chip is no GPU: nothing says what a launch takes there.
    """
    if roofline.chip.kind is not ChipKind.GPU:
        raise Unavailable("what a launch takes is known for GPUs only")
    around, unlaunched = _loops_around(execution, trips)
    inner: dict[Instruction, _Sums] = {}
    whole = _Sums()
    example: dict[Instruction, Instruction] = {}
    for row in roofline.rows:
        computation = row.instruction.computation
        runs = row.times.nominal
        if row.asynchronous or row.seconds is None or not runs or computation in unlaunched:
            continue
        whole.add(runs, row.seconds)
        loops = around.get(computation)
        if loops is not None:
            inner.setdefault(loops[1], _Sums()).add(runs, row.seconds)
            if row.instruction.location is not None:
                example.setdefault(loops[1], row.instruction)
    outermost = {innermost: outer for outer, innermost in around.values()}
    grouped: dict[Instruction, list[Instruction]] = {}
    for loop in inner:
        grouped.setdefault(outermost[loop], []).append(loop)
    rows = []
    for outer, members in grouped.items():
        dearest = max(members, key=lambda loop: inner[loop].overhead)
        rows.append(
            LoopRow(
                outer,
                sum(inner[loop].launches for loop in members),
                sum(inner[loop].work for loop in members),
                sum(inner[loop].overhead for loop in members),
                dearest,
                example.get(dearest),
            )
        )
    rows.sort(key=lambda row: -row.overhead)
    return LoopLaunches(rows, whole.launches, whole.work + whole.overhead)


def _loops_around(
    execution: Execution, trips: TripCounts
) -> tuple[dict[Computation, tuple[Instruction, Instruction]], set[Computation]]:
    """Of each computation the outermost and the innermost loop around it.

    Also the conditions that are never launched.
    """
    found: dict[Computation, tuple[Instruction, Instruction]] = {}
    unlaunched: set[Computation] = set()
    for computation in reversed(execution.order):
        loops = found.get(computation)
        for call in execution.calls[computation]:
            if call.kind in (CallKind.BODY, CallKind.CONDITION):
                outer = call.caller if loops is None else loops[0]
                found.setdefault(call.callee, (outer, call.caller))
                if call.kind is CallKind.CONDITION and trips[call.caller].source == _RECORD:
                    unlaunched.add(call.callee)
            elif loops is not None:
                found.setdefault(call.callee, loops)
    return found, unlaunched
