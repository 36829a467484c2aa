"""Device memory traffic of attention scores that are written out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module, Shape
from hloscope.passes.buffer_kinds import Phase, phase_of
from hloscope.passes.execution import Execution
from hloscope.passes.memory_spaces import Space, has_on_chip_memory, space_of
from hloscope.passes.score_arrays import ScoreArrays, Scores
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.analyses import analysis

__all__ = ["ScoreBytes", "ScoreTraffic", "count_score_traffic"]


@dataclass(frozen=True, slots=True)
class ScoreBytes:
    """Bytes that the scores of attentions of one size move through device memory.

    Each branch is taken and each loop of unknown length run once.

    Attributes:
        scores: The attentions.
        forward: Reads and writes outside of the backward pass.
        backward: Reads and writes in the backward pass, what it computes again included.
        saved: The part of what the forward pass writes that the backward pass reads.
        exact: Whether every launch among them runs a known number of times.
    """

    scores: Scores
    forward: int
    backward: int
    saved: int
    exact: bool

    @property
    def total(self) -> int:
        """Bytes read and written."""
        return self.forward + self.backward


@dataclass(frozen=True, slots=True)
class ScoreTraffic:
    """The traffic of all written-out attentions.

    Attributes:
        rows: By size of attention, as in :class:`ScoreArrays`.
    """

    rows: tuple[ScoreBytes, ...]


@analysis
def count_score_traffic(
    module: Module, scores: ScoreArrays, execution: Execution, traffic: Traffic
) -> ScoreTraffic:
    """Count what each launch reads and writes of them: an array once, in whole.

    Of a stack over layers, into which a loop saves them, only what one iteration reads
    or writes is counted. What stays on the chip is not.

    Raises:
        Unavailable: The module is not scheduled: what stays in a fusion is not decided.
    """
    if not scores.attentions:
        return ScoreTraffic(())
    if not module.header.is_scheduled:
        raise Unavailable("the module is not scheduled: take the optimized one")
    counter = _Counter(execution, traffic, on_chip=has_on_chip_memory(module))
    return ScoreTraffic(tuple(counter.row(one) for one in scores.attentions))


class _Counter:
    def __init__(self, execution: Execution, traffic: Traffic, *, on_chip: bool) -> None:
        self.execution = execution
        self.traffic = traffic
        self.on_chip = on_chip

    def row(self, scores: Scores) -> ScoreBytes:
        sums = {True: 0, False: 0}
        saved = 0
        exact = True
        stacks = self.stacks(scores)
        for moved in self.traffic.rows:
            launch = moved.instruction
            slices = stacks.get(launch, ())
            read = sum(self.size(o.shape) for o in set(launch.operands) & scores.arrays)
            read += sum(size for size, writes in slices if not writes)
            stacked = sum(size for size, writes in slices if writes)
            written = sum(self.size(leaf) for leaf in self.written(launch, scores))
            # Inside a launch nothing says where a stack lies; the launch itself does.
            read = min(read, moved.read.get(Space.DEVICE, 0))
            stacked = min(stacked, moved.written.get(Space.DEVICE, 0))
            written = min(written, moved.written.get(Space.DEVICE, 0) - stacked)
            if not read + written + stacked:
                continue
            backward = _in_backward(launch, unnamed=scores.backward_only)
            sums[backward] += (read + written + stacked) * moved.times.nominal
            exact = exact and moved.times.exact is not None
            if not backward:
                saved += (stacked + self.read_backward(launch, scores)) * moved.times.nominal
        return ScoreBytes(scores, sums[False], sums[True], saved, exact)

    def stacks(self, scores: Scores) -> dict[Instruction, list[tuple[int, bool]]]:
        """Slices that launches take out of a stack, and updates that they put into one."""
        found: dict[Instruction, list[tuple[int, bool]]] = {}
        for array in scores.arrays:
            launch = self.execution.launch_of(array)
            if launch is None:
                continue
            for user in array.users:
                if user.opcode == "dynamic-update-slice" and user.operands[1:2] == (array,):
                    into = self.execution.launch_of(user)
                    if into is not None:
                        found.setdefault(into, []).append((self.size(array.shape), True))
            if array.opcode == "dynamic-slice":
                found.setdefault(launch, []).append((self.size(array.shape), False))
        return found

    def written(self, launch: Instruction, scores: Scores) -> Iterator[Shape]:
        """The results of a launch that are scores."""
        if launch.shape.is_array:
            if launch in scores.arrays and launch.opcode != "dynamic-slice":
                yield launch.shape
        elif launch.opcode == "custom-call" and launch in scores.arrays:
            yield launch.shape.elements[0]
        else:
            yield from (user.shape for user in launch.users if user in scores.arrays)

    def read_backward(self, launch: Instruction, scores: Scores) -> int:
        """Bytes of its results that a launch of the backward pass reads, in one computation."""
        results = [launch] if launch.shape.is_array else list(launch.users)
        return sum(
            self.size(result.shape)
            for result in results
            if result in scores.arrays
            and result.shape.is_array
            and any(_in_backward(user) for user in _users(result))
        )

    def size(self, shape: Shape) -> int:
        """Bytes in device memory; none of what stays on the chip."""
        return sum(
            leaf.padded_bytes
            for leaf in shape.leaves()
            if leaf.is_array and space_of(leaf, on_chip=self.on_chip) is Space.DEVICE
        )


def _users(value: Instruction) -> Iterator[Instruction]:
    for user in value.users:
        if user.opcode == "bitcast":
            yield from user.users
        else:
            yield user


def _in_backward(launch: Instruction, *, unnamed: bool = False) -> bool:
    """Whether a launch belongs to the backward pass, by its name or by its root's.

    Args:
        launch: The launch.
        unnamed: What holds for one whose name says neither, as in a gradient that is
            written by hand.
    """
    name = launch.op_name
    if not name and launch.called:
        name = next((i.op_name for i in reversed(launch.called[0].instructions) if i.op_name), "")
    phase = phase_of(name)
    return unnamed if phase is Phase.OTHER else phase is Phase.BACKWARD
