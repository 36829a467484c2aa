"""Constants baked into the executable, and what they hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module
from hloscope.ir.closed_over import ClosedOver, ClosedOverArray
from hloscope.ir.metadata import SourceLocation
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Site
from hloscope.pipeline.inputs import KnownLiterals, LoweredModule
from hloscope.pipeline.rules import Limits

__all__ = ["Constant", "Constants", "Origin", "find_constants"]

_FLOOR_BYTES = 64 * 1024
_NAMED_FROM_BYTES = 1024  # a capture does not look for smaller arrays


class Origin(StrEnum):
    """Where a constant comes from."""

    CLOSED_OVER = "closed over"
    TRACED = "traced"
    LOWERED = "lowered"  # it stood in the module that JAX handed to XLA
    FOLDED = "folded"
    UNKNOWN = "unknown"


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
        origin: Where it comes from.
        known_by: What tells the origin, or why nothing does.
        array: The array of the jaxpr that it is, if it is one.
        likely_from: Names of the only array of the jaxpr with as many elements
            as a folded constant.
    """

    instruction: Instruction
    bytes: int
    kind: str
    digest: str
    duplicates: int = 0
    origin: Origin = Origin.UNKNOWN
    known_by: str = ""
    array: ClosedOverArray | None = None
    likely_from: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What the step's code calls the array, where that is known."""
        return self.array.names if self.array is not None else ()

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
        if self.array is not None and self.array.file is not None:
            return SourceLocation(self.array.file, self.array.line or 0)
        found = (user.location for user in self.instruction.users)
        return next((location for location in found if location is not None), None)

    @property
    def site(self) -> Site:
        """Where to point."""
        location = self.location
        readers = (user.op_name for user in self.instruction.users if user.location is not None)
        return Site(
            computation=self.instruction.computation.name,
            instruction=self.instruction.name,
            op_name=self.op_name or next(readers, None) or None,
            file=location.file if location is not None else None,
            line=location.line if location is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of at least ``floor`` bytes, the largest first.

    Attributes:
        constants: One for each instruction.
        floor: Bytes below which constants are left out.
        total_bytes: Bytes of all constants, small ones included.
        note: Why contents are unknown, if some are.
        number: How many constants there are, small ones included.
        hoisted: Closed-over arrays that JAX made arguments of, the largest first.
        origin_note: Why no origin is known, where none is.
    """

    constants: tuple[Constant, ...]
    floor: int
    total_bytes: int
    note: str = ""
    number: int = 0
    hoisted: tuple[ClosedOverArray, ...] = ()
    origin_note: str = ""


@analysis
def find_constants(
    module: Module,
    limits: Limits,
    literals: KnownLiterals | None,
    closed_over: ClosedOver | None = None,
    lowered: LoweredModule | None = None,
) -> Constants:
    """List the constants, in every computation, that are large enough to matter.

    A constant whose contents are those of an array of the jaxpr is that array.
    One whose contents no array of the jaxpr has was computed by XLA: it folded
    operations on constants while compiling. Of a dump that holds the module
    before optimization the constants there stand in for the arrays of the jaxpr.

    Args:
        module: Where they stand.
        limits: Constants below its ``constant_bytes`` are listed down to 64 KiB.
        literals: What a capture knows of constants whose elements the text
            leaves out.
        closed_over: The arrays of the jaxpr, where a capture read them.
        lowered: The module before optimization, where there is one.
    """
    origins = _Jaxpr(closed_over) if closed_over is not None else _lowered(lowered)
    floor = min(_FLOOR_BYTES, limits.constant_bytes)
    total = number = 0
    found: list[Constant] = []
    for instruction in module.instructions():
        if instruction.opcode == "constant":
            size = instruction.shape.bytes
            total += size
            number += 1
            if size >= floor:
                kind, digest = _contents(instruction, literals)
                found.append(origins.traced(Constant(instruction, size, kind, digest)))
    alike: dict[str, int] = {}
    for constant in found:
        alike[constant.digest] = alike.get(constant.digest, 0) + 1
    counted = tuple(
        replace(c, duplicates=alike[c.digest] - 1 if c.digest else 0)
        for c in sorted(found, key=lambda c: (-c.bytes, c.instruction.name))
    )
    unread = any(constant.kind == "unknown" for constant in counted)
    note = "the dump elides its elements"
    if literals is not None:
        note = literals.note or "the capture could not read its elements"
    arrays = closed_over.arrays if closed_over is not None else ()
    return Constants(
        constants=counted,
        floor=floor,
        total_bytes=total,
        note=note if unread else "",
        number=number,
        hoisted=tuple(
            sorted((a for a in arrays if a.parameters and a.bytes >= floor), key=lambda a: -a.bytes)
        ),
        origin_note=origins.note,
    )


class _Unknown:
    """Where nothing tells what the program held before XLA worked on it."""

    def __init__(self, note: str) -> None:
        self.note = note

    def traced(self, constant: Constant) -> Constant:
        """The constant, with what its origin is not known for."""
        return replace(constant, known_by=self.note)


class _Jaxpr:
    """The arrays of the jaxpr, to compare contents with."""

    note = ""

    def __init__(self, closed_over: ClosedOver) -> None:
        self.closed_over = closed_over

    def traced(self, constant: Constant) -> Constant:
        """The constant with its origin, found by comparing contents."""
        if not constant.digest:
            return replace(constant, known_by="its contents are unknown")
        array = self.closed_over.by_digest.get(constant.digest)
        if array is not None and array.dtype == constant.dtype:  # it may have been reshaped
            if array.names:
                origin, known_by = Origin.CLOSED_OVER, "the array of that name has its contents"
            else:
                origin, known_by = Origin.TRACED, "an array of the jaxpr has its contents"
            return replace(constant, origin=origin, known_by=known_by, array=array)
        made = self.closed_over.by_changed_digest.get(constant.digest)
        if made is not None and made[1].dtype == constant.dtype:
            array, change = made[0], made[1].change
            what = "the array of that name" if array.names else "an array of the jaxpr"
            known_by = f"{what}, {change}, has its contents"
            return replace(constant, origin=Origin.FOLDED, known_by=known_by, array=array)
        if constant.bytes < _NAMED_FROM_BYTES:
            return replace(constant, known_by="arrays as small as this are not looked for")
        if self.closed_over.note:
            return replace(constant, known_by=self.closed_over.note)
        if not _in_row_major(constant.instruction):
            known_by = "it is stored in another order than the jaxpr's arrays"
            return replace(constant, known_by=known_by)
        return replace(
            constant,
            origin=Origin.FOLDED,
            known_by="no array of the jaxpr has its contents",
            likely_from=self.of_its_size(constant),
        )

    def of_its_size(self, constant: Constant) -> tuple[str, ...]:
        """Names of the one closed-over array with as many elements, if there is just one."""
        count = constant.instruction.shape.num_elements
        arrays = self.closed_over.arrays
        found = {array.names for array in arrays if math.prod(array.dimensions) == count}
        return next(iter(found)) if len(found) == 1 else ()


class _Before:
    """The constants of the module before optimization.

    Its text leaves the elements of large constants out; then only that there
    is none of a type and a size tells that XLA made a constant.
    """

    note = ""

    def __init__(self, module: Module) -> None:
        self.digests: dict[tuple[str, int], set[str]] = {}
        for instruction in module.instructions():
            if instruction.opcode == "constant" and instruction.shape.is_array:
                _, digest = _contents(instruction, None)
                self.digests.setdefault(_size_of(instruction), set()).add(digest)

    def traced(self, constant: Constant) -> Constant:
        """The constant with its origin, by contents, or else by type and size."""
        before = self.digests.get(_size_of(constant.instruction))
        if before is None:
            return replace(
                constant,
                origin=Origin.FOLDED,
                known_by="no constant before optimization has its type and size",
            )
        if "" in before or not constant.digest:
            known_by = "constants before optimization have its type and size; their contents "
            return replace(constant, known_by=f"{known_by}are not known")
        if constant.digest in before:
            known_by = "a constant before optimization has its contents"
            return replace(constant, origin=Origin.LOWERED, known_by=known_by)
        if not _in_row_major(constant.instruction):
            known_by = "it is stored in another order than the constants before optimization"
            return replace(constant, known_by=known_by)
        known_by = "no constant before optimization has its contents"
        return replace(constant, origin=Origin.FOLDED, known_by=known_by)


def _size_of(instruction: Instruction) -> tuple[str, int]:
    return instruction.shape.dtype, instruction.shape.num_elements


def _lowered(lowered: LoweredModule | None) -> _Before | _Unknown:
    if lowered is None:
        return _Unknown("the arrays that the step held are not known")
    try:
        return _Before(lowered.module)
    except Unavailable as error:
        return _Unknown(error.message)


def _in_row_major(instruction: Instruction) -> bool:
    """Whether the elements are stored in the order in which they were compared."""
    layout = instruction.shape.layout
    rank = len(instruction.shape.dimensions)
    return layout is None or layout.minor_to_major == tuple(reversed(range(rank)))


def _contents(instruction: Instruction, literals: KnownLiterals | None) -> tuple[str, str]:
    literal = instruction.literal
    if literal is not None and not literal.elided:
        facts = literal.facts()
        return facts.kind, facts.digest
    known = literals.by_name.get(instruction.name) if literals is not None else None
    return (known.kind, known.digest) if known is not None else ("unknown", "")
