"""Which part of a training step an instruction belongs to, by the names that JAX and XLA leave."""

from __future__ import annotations

import re
from enum import StrEnum

from hloscope.ir import Instruction
from hloscope.passes.buffer_kinds import Phase, phase_of

__all__ = [
    "StepPart",
    "is_checkpointed",
    "is_recomputation",
    "is_replay",
    "is_xla_clone",
    "part_of",
]

_REMATTED = "rematted_computation"
_CHECKPOINT = "checkpoint"
_XLA_CLONE = re.compile(r".*\.remat\d*(?:\.\d+)*(?:\.clone(?:\.\d+)*)*")


class StepPart(StrEnum):
    """The part of a training step that an instruction belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    REPLAYED = "replayed"  # forward work that a checkpoint runs again in the backward pass
    OTHER = "other"


def part_of(instruction: Instruction) -> StepPart:
    """The part of a step by JAX's scopes, see :func:`phase_of` and :func:`is_recomputation`."""
    if is_recomputation(instruction):
        return StepPart.REPLAYED
    return _PARTS[phase_of(instruction.op_name)]


_PARTS = {
    Phase.FORWARD: StepPart.FORWARD,
    Phase.BACKWARD: StepPart.BACKWARD,
    Phase.OTHER: StepPart.OTHER,
}


def is_recomputation(instruction: Instruction) -> bool:
    """Whether its name says that it computes again what was computed before.

    Where XLA merged a repetition with the first computation the merged one may
    carry the name: it is evidence, not proof.
    """
    return is_xla_clone(instruction) or is_replay(instruction)


def is_xla_clone(instruction: Instruction) -> bool:
    """Whether XLA's own rematerialization made it: it puts ``.remat`` into the name."""
    return _XLA_CLONE.fullmatch(instruction.name) is not None


def is_replay(instruction: Instruction) -> bool:
    """Whether a ``jax.checkpoint`` runs it again, by the first of its op_names.

    A whole component of the path says so: a scope of the user's that only
    contains the word does not.
    """
    return _has(instruction, _REMATTED)


def is_checkpointed(instruction: Instruction) -> bool:
    """Whether it belongs to the backward pass of something inside a ``jax.checkpoint``."""
    return _has(instruction, _CHECKPOINT)


def _has(instruction: Instruction, component: str) -> bool:
    first = instruction.op_name.partition(";")[0]
    return component in first and component in first.split("/")
