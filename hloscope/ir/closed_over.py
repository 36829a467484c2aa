"""Arrays that a step read from its surroundings while it was traced, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["ChangedArray", "ClosedOver", "ClosedOverArray"]


@dataclass(frozen=True, slots=True)
class ChangedArray:
    """What an array holds after something that XLA likes to do to it while compiling.

    Attributes:
        change: What is done: ``rounded to bf16``, ``transposed``...
        dtype: Element type afterwards, in HLO's spelling.
        digest: SHA-256 of the elements' bytes afterwards.
    """

    change: str
    dtype: str
    digest: str


@dataclass(frozen=True, slots=True)
class ClosedOverArray:
    """One array of the jaxpr that is no argument.

    Attributes:
        dtype: Element type in HLO's spelling.
        dimensions: Its dimensions.
        bytes: Bytes of its elements.
        digest: SHA-256 of the elements' bytes; empty where they could not be read.
        names: What the step's code calls it, for example ``TABLE`` or
            ``self.tables['sin']``; several where several names hold it, none
            where it was made while tracing or is out of sight.
        parameters: Numbers of the entry parameters that JAX hoisted it into;
            none where it was lowered to a constant.
        file: Python file of the first operation that reads it, if known.
        line: Line there.
        changed: What it holds after XLA's usual changes.
    """

    dtype: str
    dimensions: tuple[int, ...]
    bytes: int
    digest: str
    names: tuple[str, ...] = ()
    parameters: tuple[int, ...] = ()
    file: str | None = None
    line: int | None = None
    changed: tuple[ChangedArray, ...] = ()


@dataclass(frozen=True)
class ClosedOver:
    """All such arrays of at least 1 KiB.

    Attributes:
        arrays: In the order of the jaxpr.
        note: Why some could not be read, if any.
    """

    arrays: tuple[ClosedOverArray, ...] = ()
    note: str = ""

    @cached_property
    def by_digest(self) -> Mapping[str, ClosedOverArray]:
        """Those whose elements are known; of equal ones, one that has a name."""
        found: dict[str, ClosedOverArray] = {}
        for array in self.arrays:
            if array.digest and (array.digest not in found or not found[array.digest].names):
                found[array.digest] = array
        return found

    @cached_property
    def by_changed_digest(self) -> Mapping[str, tuple[ClosedOverArray, ChangedArray]]:
        """Those whose elements are known by the digest of what XLA may make of them."""
        found: dict[str, tuple[ClosedOverArray, ChangedArray]] = {}
        for array in self.arrays:
            for change in array.changed:
                if change.digest not in found or not found[change.digest][0].names:
                    found[change.digest] = array, change
        return found

    @cached_property
    def by_parameter(self) -> Mapping[int, ClosedOverArray]:
        """Those that JAX hoisted into arguments."""
        return {number: a for a in self.arrays for number in a.parameters}
