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
    "is_xla_repetition",
    "part_of",
]

_REMATTED = "rematted_computation"
_CHECKPOINT = "checkpoint"
_XLA_CLONE = re.compile(r".*\.remat\d*(?:\.\d+)*(?:\.clone(?:\.\d+)*)*")
_FAMILY = re.compile(r"(?P<original>.*?)\.remat(?P<number>\d*)(?![a-z])")
_MOST = 64  # clones of one instruction that are looked for


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
    return is_xla_repetition(instruction) or is_replay(instruction)


def is_xla_clone(instruction: Instruction) -> bool:
    """Whether XLA's own rematerialization made it: it puts ``.remat`` into the name."""
    return _XLA_CLONE.fullmatch(instruction.name) is not None


def is_xla_repetition(instruction: Instruction) -> bool:
    """Whether XLA's own rematerialization computes something again with it.

    Where every reader got a clone, XLA drops the original: one clone of each
    family, that of the lowest number, is then the only computation and merely
    stands in another place. So another member of the family has to be left.
    """
    if not is_xla_clone(instruction):
        return False
    family = _FAMILY.match(instruction.name)
    if family is None:
        return True
    original, number = family["original"], int(family["number"] or 1)
    members = [original, instruction.name.rpartition(".remat")[0]]
    members += [f"{original}.remat{n if n > 1 else ''}" for n in range(1, min(number, _MOST) + 1)]
    left = (name for name in members if name != instruction.name)
    return any(name in instruction.computation for name in left)


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
