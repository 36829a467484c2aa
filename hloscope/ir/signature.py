"""What goes into a compiled step and what comes out, leaf by leaf."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["InputLeaf", "OutputLeaf", "Role", "Signature"]


class Role(StrEnum):
    """What an argument is to a training step."""

    STATE = "state"
    BATCH = "batch"
    RNG = "rng"
    FROZEN = "frozen"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """One leaf of the step's arguments.

    Attributes:
        path: Pytree path as JAX prints it, for example ``state['params']['w']``.
        role: What the argument that holds the leaf is to the step.
        dtype: Element type in HLO's spelling, for example ``bf16``.
        dimensions: Global (unsharded) dimensions.
        donated: Whether the caller asked for the buffer to be donated;
            ``None`` where nothing says (a bare dump).
        parameter: Number of the entry parameter, or ``None`` when jit dropped
            the leaf because the step never reads it.
        sharding: How it is laid over devices, in JAX's words, if known.
        memory_kind: ``device``, ``pinned_host``... where known.
    """

    path: str
    role: Role
    dtype: str
    dimensions: tuple[int, ...]
    donated: bool | None
    parameter: int | None
    sharding: str | None = None
    memory_kind: str | None = None


@dataclass(frozen=True, slots=True)
class OutputLeaf:
    """One leaf of the step's results.

    Attributes:
        path: Pytree path, for example ``[0]['params']['w']``.
        dtype: Element type in HLO's spelling.
        dimensions: Global (unsharded) dimensions.
        index: Position among the entry computation's results, or ``None`` when
            JAX forwards an argument and XLA never sees the leaf.
        sharding: How it is laid over devices, if known.
        memory_kind: ``device``, ``pinned_host``... where known.
    """

    path: str
    dtype: str
    dimensions: tuple[int, ...]
    index: int | None
    sharding: str | None = None
    memory_kind: str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """All leaves of a step's arguments and results.

    Attributes:
        inputs: In the order of ``jax.tree.flatten((args, kwargs))``, dropped
            leaves included.
        outputs: In the order of the flattened result.
        basis: ``captured`` when JAX itself told, ``inferred`` when read from
            the names and aliases of a bare module.
    """

    inputs: tuple[InputLeaf, ...]
    outputs: tuple[OutputLeaf, ...]
    basis: str = "captured"

    def by_parameter(self) -> dict[int, InputLeaf]:
        """Entry parameter number to leaf, for the leaves that jit kept."""
        return {leaf.parameter: leaf for leaf in self.inputs if leaf.parameter is not None}
