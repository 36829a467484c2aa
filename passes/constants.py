"""Constants baked into the executable, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass

from hloscope.ir import Instruction, Module
from hloscope.ir.metadata import SourceLocation
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import KnownLiterals
from hloscope.pipeline.rules import Limits

__all__ = ["Constant", "Constants", "find_constants"]

_FLOOR_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant instruction.

    Attributes:
        instruction: The instruction.
        bytes: Bytes that its elements take.
        kind: ``zeros``, ``splat``, ``iota``, ``data``, or ``unknown`` where the
            module's text leaves the elements out and nothing else tells them.
        digest: Equal for constants of equal contents; empty where unknown.
        duplicates: How many other constants of the module hold the same.
    """

    instruction: Instruction
    bytes: int
    kind: str
    digest: str
    duplicates: int = 0

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.instruction.shape.dtype

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self.instruction.shape.dimensions

    @property
    def op_name(self) -> str:
        """Its scope, where the module keeps one."""
        return self.instruction.op_name

    @property
    def location(self) -> SourceLocation | None:
        """The Python line that it comes from, or that first uses it.

        XLA keeps no line for a closed-over array; the operation that reads it
        has one.
        """
        own = self.instruction.location
        if own is not None:
            return own
        found = (user.location for user in self.instruction.users)
        return next((location for location in found if location is not None), None)


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of at least ``floor`` bytes, the largest first.

    Attributes:
        constants: One for each instruction.
        floor: Bytes below which constants are left out.
        total_bytes: Bytes of all constants, small ones included.
        note: Why contents are unknown, if some are.
    """

    constants: tuple[Constant, ...]
    floor: int
    total_bytes: int
    note: str = ""


@analysis
def find_constants(module: Module, limits: Limits, literals: KnownLiterals | None) -> Constants:
    """List the constants, in every computation, that are large enough to matter.

    Args:
        module: Where they stand.
        limits: Constants below its ``constant_bytes`` are listed down to 64 KiB.
        literals: What a capture knows of constants whose elements the text
            leaves out.
    """
    floor = min(_FLOOR_BYTES, limits.constant_bytes)
    total = 0
    found: list[Constant] = []
    for instruction in module.instructions():
        if instruction.opcode == "constant":
            size = instruction.shape.bytes
            total += size
            if size >= floor:
                kind, digest = _contents(instruction, literals)
                found.append(Constant(instruction, size, kind, digest))
    alike: dict[str, int] = {}
    for constant in found:
        alike[constant.digest] = alike.get(constant.digest, 0) + 1
    counted = tuple(
        Constant(c.instruction, c.bytes, c.kind, c.digest, alike[c.digest] - 1 if c.digest else 0)
        for c in sorted(found, key=lambda c: (-c.bytes, c.instruction.name))
    )
    unread = any(constant.kind == "unknown" for constant in counted)
    note = "the dump elides its elements"
    if literals is not None:
        note = literals.note or "the capture could not read its elements"
    return Constants(counted, floor, total, note if unread else "")


def _contents(instruction: Instruction, literals: KnownLiterals | None) -> tuple[str, str]:
    literal = instruction.literal
    if literal is not None and not literal.elided:
        facts = literal.facts()
        return facts.kind, facts.digest
    known = literals.by_name.get(instruction.name) if literals is not None else None
    return (known.kind, known.digest) if known is not None else ("unknown", "")
