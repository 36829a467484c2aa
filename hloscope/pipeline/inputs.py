"""What a subject may bring beside the module and its signature, as types to ask for.

An analysis that needs one names it as a parameter; a subject that has none
leaves it out or says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from hloscope.errors import HloscopeError, Unavailable
from hloscope.ir import Module
from hloscope.ir.compiler_log import FullRematerialization, SlowFold

__all__ = [
    "CompileTimes",
    "CompilerSetup",
    "KnownLiteral",
    "KnownLiterals",
    "LoweredModule",
    "MeshAxes",
    "XlaCost",
    "XlaMemory",
]


@dataclass(frozen=True, slots=True)
class CompileTimes:
    """Seconds that it took to make the program; ``None`` where a part was not timed.

    Attributes:
        trace: From the Python function to the jaxpr.
        lower: From the jaxpr to the module that XLA gets.
        compile: XLA's own part.
    """

    trace: float | None
    lower: float | None
    compile: float | None


@dataclass(frozen=True, slots=True)
class CompilerSetup:
    """What is known of a compile beside its result and its time.

    Attributes:
        slow_folds: What XLA warned of folding slowly; ``None`` where nobody listened.
        persistent_cache: Whether the user's program sets up JAX's compilation
            cache; ``None`` where there is no such program.
        full_rematerializations: What XLA's partitioner warned of gathering whole;
            ``None`` where nobody listened.
    """

    slow_folds: tuple[SlowFold, ...] | None
    persistent_cache: bool | None
    full_rematerializations: tuple[FullRematerialization, ...] | None = None


@dataclass(frozen=True, slots=True)
class MeshAxes:
    """The device mesh that a program is partitioned over.

    Attributes:
        sizes: Devices along each axis by its name, in the mesh's order.
    """

    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class XlaCost:
    """What XLA's own cost analysis says of the optimized module.

    Attributes:
        values: Its properties by XLA's names, for example ``flops``.
        source: Where the figures come from, where that needs saying.
    """

    values: Mapping[str, float]
    source: str = ""

    @property
    def flops(self) -> float | None:
        """Floating-point operations, or ``None`` where XLA gives none."""
        return self.values.get("flops")


@dataclass(frozen=True, slots=True)
class XlaMemory:
    """What XLA's own memory analysis says, in bytes by XLA's names."""

    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KnownLiteral:
    """What a constant holds whose value the module's text leaves out.

    Attributes:
        kind: ``zeros``, ``splat`` (one value throughout), ``iota`` or ``data``.
        value: The value of ``zeros`` or of a ``splat``, as text.
        digest: Equal digests are equal contents.
    """

    kind: str
    value: str | None
    digest: str


@dataclass(frozen=True, slots=True)
class KnownLiterals:
    """Elided constants by instruction name.

    Attributes:
        by_name: What is known of each.
        note: Why some are missing, if any are.
    """

    by_name: Mapping[str, KnownLiteral]
    note: str = ""


class LoweredModule:
    """The module before optimization, as JAX handed it to XLA; read when it is asked for.

    Args:
        read: Reads and parses it.
        count: Counts its instructions in less time than that, where something can.
    """

    def __init__(self, read: Callable[[], Module], count: Callable[[], int] | None = None) -> None:
        self._read = read
        self._count = count

    @cached_property
    def module(self) -> Module:
        """The module.

        Raises:
            Unavailable: It cannot be read.
        """
        try:
            return self._read()
        except HloscopeError as error:
            raise Unavailable(f"the module before optimization: {error.message}") from error

    @cached_property
    def num_instructions(self) -> int:
        """Instructions of all its computations.

        Raises:
            Unavailable: It cannot be read.
        """
        return self.module.num_instructions if self._count is None else self._count()
