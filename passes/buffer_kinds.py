"""What a buffer is for: parameter, result, saved activation, gradient, workspace..."""

from __future__ import annotations

import re
from enum import StrEnum

from hloscope.ir import Instruction
from hloscope.passes.buffers import Buffer
from hloscope.pipeline.analyses import analysis

__all__ = ["BufferKind", "BufferKinds", "Phase", "named_origin", "phase_of", "place_in"]

_ORIGIN_STEPS = 4
_INSIDE_STEPS = 64
_NAMED = re.compile(r'\bop_name="[^"]')
_COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "recv",
    "reduce-scatter",
    "send",
)


class BufferKind(StrEnum):
    """What a buffer is for; ``saved`` is an activation kept for the backward pass."""

    PARAMETER = "parameter"
    OUTPUT = "output"
    RESIDUAL = "saved"
    GRADIENT = "gradient"
    COLLECTIVE = "collective"
    WORKSPACE = "workspace"
    TEMPORARY = "temporary"
    CONSTANT = "constant"


class Phase(StrEnum):
    """The part of a training step that JAX's scopes put an instruction in."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OTHER = "other"


def phase_of(op_name: str) -> Phase:
    """Forward and backward by the transforms in an op_name, of joined ones by the first.

    ``jvp(...)`` is differentiated code on its way forward, ``transpose(...)``
    its backward pass, what is computed again in it included.
    """
    first = op_name.partition(";")[0]
    if "transpose(" in first:
        return Phase.BACKWARD
    return Phase.FORWARD if "jvp(" in first else Phase.OTHER


def named_origin(instruction: Instruction) -> Instruction:
    """The instruction, or where it has no op_name the nearest named one that it is made of.

    In a fusion without a name that is the nearest to its root, else in what it
    reads.
    """
    return _named_origin(instruction)[0]


def _named_origin(instruction: Instruction) -> tuple[Instruction, str]:
    here, name = instruction, instruction.op_name
    for _ in range(_ORIGIN_STEPS):
        if name:
            break
        inside = _named_inside(here)
        if inside is not None:
            return inside
        if not here.operands:
            break
        here = here.operands[0]
        name = here.op_name
    return (here, name) if name else (instruction, "")


def _named_inside(fusion: Instruction) -> tuple[Instruction, str] | None:
    """The named instruction of a fusion's body that stands nearest to its root."""
    body = fusion.callee("calls") if fusion.opcode == "fusion" else None
    if body is None:
        return None
    seen = {body.root}
    level = [body.root]
    while level and len(seen) <= _INSIDE_STEPS:
        for each in level:
            if name := each.op_name:
                return each, name
        level = [o for each in level for o in dict.fromkeys(each.operands) if o not in seen]
        seen.update(level)
    return None


def _phase_of(instruction: Instruction) -> Phase:
    # Most of what is asked is in neither pass, which takes no reading of the metadata.
    raw = instruction.attributes.get("metadata", "")
    if _NAMED.search(raw) and "jvp(" not in raw and "transpose(" not in raw:
        return Phase.OTHER
    return phase_of(_named_origin(instruction)[1])


def place_in(buffer: Buffer, writer: Instruction) -> int | None:
    """Which array of an instruction's tuple lies in the buffer; ``None`` if it gives no tuple."""
    if not writer.shape.is_tuple:
        return None
    leaves = writer.shape.leaves()
    same = [n for n, leaf in enumerate(leaves) if leaf is buffer.shape]
    same = same or [n for n, leaf in enumerate(leaves) if leaf == buffer.shape]
    return same[0] if same else 0


class BufferKinds:
    """What buffers are for, each found once.

    A workspace is the array of bytes that a library call returns last. An
    activation saved for the backward pass is written forward and read backward;
    a gradient is written backward and read outside both.
    """

    def __init__(self) -> None:
        self._phases: dict[Instruction, Phase] = {}
        self._kinds: dict[Buffer, BufferKind] = {}

    def __getitem__(self, buffer: Buffer) -> BufferKind:
        kind = self._kinds.get(buffer)
        if kind is None:
            kind = self._kinds[buffer] = self._find(buffer)
        return kind

    def _find(self, buffer: Buffer) -> BufferKind:
        instruction = buffer.instruction
        if instruction.opcode == "parameter":
            return BufferKind.PARAMETER
        if instruction.opcode == "constant":
            return BufferKind.CONSTANT
        if _is_workspace(buffer):
            return BufferKind.WORKSPACE
        phases = (self._written(buffer, writer) for writer in buffer.writers)
        written = next((phase for phase in phases if phase is not Phase.OTHER), None)
        if written is Phase.FORWARD and self._is_read_in(buffer, Phase.BACKWARD):
            return BufferKind.RESIDUAL
        if written is Phase.BACKWARD and self._is_read_in(buffer, Phase.OTHER):
            return BufferKind.GRADIENT
        if instruction.opcode.startswith(_COLLECTIVES):
            return BufferKind.COLLECTIVE
        return BufferKind.TEMPORARY

    def _is_read_in(self, buffer: Buffer, phase: Phase) -> bool:
        # The last reader is the likeliest to be in a later phase.
        return any(self._phase(reader) is phase for reader in reversed(buffer.readers))

    def _written(self, buffer: Buffer, writer: Instruction) -> Phase:
        """The phase of one array: a fusion may hold instructions of both passes."""
        body = writer.callee("calls") if writer.opcode == "fusion" else None
        if body is not None:
            place = place_in(buffer, writer)
            root = body.root
            if place is not None and place < len(root.operands):
                root = root.operands[place]
            origin = named_origin(root)
            if origin.op_name:
                return self._phase(origin)
        return self._phase(writer)

    def _phase(self, instruction: Instruction) -> Phase:
        phase = self._phases.get(instruction)
        if phase is None:
            phase = self._phases[instruction] = _phase_of(instruction)
        return phase


@analysis
def buffer_kinds() -> BufferKinds:
    """One memory of kinds for all that ask within a session."""
    return BufferKinds()


def _is_workspace(buffer: Buffer) -> bool:
    call = buffer.instruction
    if call.opcode != "custom-call":
        return False
    leaves = call.shape.leaves()
    return (
        len(leaves) > 1
        and buffer.shape is leaves[-1]
        and (buffer.shape.dtype in ("s8", "u8") and buffer.shape.rank == 1)
    )
