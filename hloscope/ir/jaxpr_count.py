"""What a step's jaxpr costs, as plain data: counted where JAX runs, read where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["JaxprCount", "JaxprFlops", "JaxprSite", "UncountedPrimitive"]


@dataclass(frozen=True, slots=True)
class JaxprFlops:
    """A number of FLOPs that loops and branches may leave open; a multiply-add is two.

    Attributes:
        low: At least this many.
        high: At most this many; ``None`` where nothing bounds it.
        nominal: With the dearest branch of each conditional taken and each loop
            of unknown length run once, which is how XLA counts branches and
            loops.
    """

    low: int
    high: int | None
    nominal: int

    @property
    def exact(self) -> bool:
        """Whether it is one number."""
        return self.low == self.high

    def __add__(self, other: JaxprFlops) -> JaxprFlops:
        high = None if self.high is None or other.high is None else self.high + other.high
        return JaxprFlops(self.low + other.low, high, self.nominal + other.nominal)


@dataclass(frozen=True, slots=True)
class JaxprSite:
    """Products of one kind and one size that one line of Python leads to.

    Attributes:
        kind: ``matmul``, ``convolution``, ``attention`` (asked for as one
            operation), ``linear algebra`` or ``fft``.
        file: Python file, named as the module's source locations name it;
            empty where JAX does not know it.
        line: Line in it, from 1; 0 where JAX does not know it.
        backward: Whether differentiation made it (JAX's scope has ``transpose``).
        recomputed: Whether ``jax.checkpoint`` runs it a second time.
        each: FLOPs of one of them, over all devices.
        runs: How many run, nominally in the sense of :class:`JaxprFlops`.
        dead: How many of these run for nothing: no result depends on them.
        repeated: How many repeat a product of the same operands.
    """

    kind: str
    file: str
    line: int
    backward: bool
    recomputed: bool
    each: int
    runs: int
    dead: int = 0
    repeated: int = 0

    @property
    def flops(self) -> int:
        """FLOPs of all of them together, over all devices."""
        return self.each * self.runs


@dataclass(frozen=True, slots=True)
class UncountedPrimitive:
    """Calls whose FLOPs a jaxpr does not tell: kernels, foreign functions, callbacks.

    Attributes:
        primitive: JAX's name of the primitive.
        name: What it calls, where it says so.
        calls: How often it runs.
        shapes: Operands and results of the first one, as JAX writes types.
        reason: Why it is not counted.
    """

    primitive: str
    name: str
    calls: int
    shapes: str
    reason: str


@dataclass(frozen=True, slots=True)
class JaxprCount:
    """FLOPs of the products in a step as its author wrote it, over all devices.

    Attributes:
        total: Products of every kind.
        by_kind: The same by kind, for the kinds that occur.
        recomputed: The part of ``total`` that ``jax.checkpoint`` runs again.
        sites: Where they are; their ``flops`` sum up to ``total.nominal``.
        uncounted: What ``total`` leaves out.
        models: Names of the models that parts of it rest on.
        notes: What makes ``total`` a range.
    """

    total: JaxprFlops
    by_kind: Mapping[str, JaxprFlops]
    recomputed: JaxprFlops
    sites: tuple[JaxprSite, ...]
    uncounted: tuple[UncountedPrimitive, ...] = ()
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def at(self, file: str, line: int) -> int:
        """Nominal FLOPs of one line of Python."""
        return sum(site.flops for site in self.sites if (site.file, site.line) == (file, line))
