"""Values of the forward pass that wait for the backward pass in the host's memory.

A remat policy asks for it (``save_and_offload_only_these_names``,
``offload_dot_with_no_batch_dims``); whether it was done the copies of the
optimized module tell, or their absence. Arguments and new state that a step keeps
with the host are no residuals and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hloscope.ir import Instruction
from hloscope.ir.named_points import NamedPoints, RematPolicy
from hloscope.passes.buffer_kinds import Phase, named_origin, phase_of
from hloscope.passes.execution import Execution
from hloscope.passes.memory_spaces import Space, space_of
from hloscope.passes.multiplicity import Multiplicity, Times
from hloscope.passes.residual_makers import argument_of, chain_of
from hloscope.pipeline.analyses import analysis

__all__ = ["HostCopy", "HostOffload", "OffloadOutcome", "find_offload"]

_TO_HOST, _TO_DEVICE = "MoveToHost", "MoveToDevice"


class OffloadOutcome(StrEnum):
    """What became of the offloading that the step's policies ask for."""

    NONE = "none"
    CONFIRMED = "confirmed"
    MISSING = "missing"
    UNASKED = "in the optimized HLO"


@dataclass(frozen=True, slots=True)
class HostCopy:
    """One instruction that moves an array, or a part of it, to the host or back.

    Attributes:
        instruction: Which; it may stand in what another one runs.
        to_host: Whether it goes there, and does not come back.
        bytes: Of one run, without padding.
        times: How often it runs.
        named: What computed the values, or the nearest to it that has an op_name.
    """

    instruction: Instruction
    to_host: bool
    bytes: int
    times: Times
    named: Instruction

    @property
    def total(self) -> int:
        """Bytes in one step, nominally."""
        return self.bytes * self.times.nominal


@dataclass(frozen=True, slots=True)
class HostOffload:
    """All residuals of a program that go to the host and come back.

    Attributes:
        asked: The policies that ask for it; ``None`` where the jaxpr is not known.
        copies: In the order of the computations.
    """

    asked: tuple[RematPolicy, ...] | None
    copies: Sequence[HostCopy]

    @property
    def bytes_out(self) -> int:
        """Bytes that go to the host in one step."""
        return sum(copy.total for copy in self.copies if copy.to_host)

    @property
    def bytes_back(self) -> int:
        """Bytes that come back."""
        return sum(copy.total for copy in self.copies if not copy.to_host)

    @property
    def outcome(self) -> OffloadOutcome:
        """Whether what was asked for is there; both ways, as one alone keeps nothing."""
        done = bool(self.bytes_out and self.bytes_back)
        if done:
            return OffloadOutcome.CONFIRMED if self.asked else OffloadOutcome.UNASKED
        return OffloadOutcome.MISSING if self.asked else OffloadOutcome.NONE


@analysis
def find_offload(
    execution: Execution, times: Multiplicity, points: NamedPoints | None
) -> HostOffload:
    """Look for copies between the two memories, in what is launched and inside of it.

    A copy counts with what it moves: of an update in place the update, of a slice
    the slice, multiplied by the loops around it. A module from before XLA's
    offloading passes has custom calls in their place.
    """
    copies = []
    for computation, often in times.items():
        for instruction in computation.instructions:
            way = _moved(instruction)
            if way is None:
                continue
            to_host, size = way
            launch = _outermost(instruction, execution)
            source = instruction.operands[0]
            if argument_of(launch if not to_host else source) is not None:
                continue
            chain = chain_of(launch)
            named = next((i for i in reversed(chain) if i.op_name), named_origin(launch))
            # What the backward pass or the update of the state puts there is no residual.
            if to_host and named.op_name and phase_of(named.op_name) is not Phase.FORWARD:
                continue
            copies.append(HostCopy(instruction, to_host, size, often, named))
    asked = None
    if points is not None:
        asked = tuple(policy for policy in points.policies if policy.offloads_anything)
    return HostOffload(asked, list(_residuals(copies)))


def _residuals(copies: list[HostCopy]) -> Iterator[HostCopy]:
    """Without moves to the device of what never left it: a marker that changes nothing."""
    sent = {copy.instruction.shape.without_layout() for copy in copies if copy.to_host}
    for copy in copies:
        marker = copy.instruction.custom_call_target == _TO_DEVICE
        if not marker or copy.instruction.shape.without_layout() in sent:
            yield copy


def _moved(instruction: Instruction) -> tuple[bool, int] | None:
    """Whether an instruction moves data to the host, and how many bytes; ``None`` if neither."""
    opcode, operands = instruction.opcode, instruction.operands
    if not operands:
        return None
    if opcode == "custom-call":
        target = instruction.custom_call_target
        if target in (_TO_HOST, _TO_DEVICE):
            return target == _TO_HOST, instruction.shape.bytes
        return None
    if opcode in ("copy", "dynamic-slice", "slice"):
        source, result, size = operands[0].shape, instruction.shape, instruction.shape.bytes
    elif opcode == "copy-start" and instruction.shape.is_tuple:
        result = instruction.shape.leaves()[0]
        source, size = operands[0].shape, result.bytes
    elif opcode == "dynamic-update-slice" and len(operands) > 1:
        source, result, size = operands[1].shape, instruction.shape, operands[1].shape.bytes
    else:
        return None
    if source.is_tuple or result.is_tuple:
        return None
    # Which of a device's memories it is makes no difference here.
    there, here = (space_of(shape, on_chip=True) is Space.HOST for shape in (result, source))
    return (there, size) if there is not here else None


def _outermost(instruction: Instruction, execution: Execution) -> Instruction:
    """What the computation that waits for it runs: the instruction, a fusion or an async start."""
    launch = execution.launch_of(instruction) or instruction
    while launch.computation in execution.asynchronous:
        starts = [c for c in launch.computation.callers if c.opcode == "async-start"]
        if len(starts) != 1:
            break
        launch = starts[0]
    return launch
