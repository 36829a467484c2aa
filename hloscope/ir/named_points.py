"""The values that a step names for its remat policies, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

__all__ = ["Crossing", "Maker", "NamedPoint", "NamedPoints", "RematPolicy"]


class Crossing(StrEnum):
    """Whether a value goes from the forward into the backward pass of a jaxpr."""

    KEPT = "kept"
    """The backward pass reads it: a policy saved it, or nothing recomputes it."""
    LAST = "last"
    """Of a loop only the last iteration's is read."""
    NOT_KEPT = "not kept"
    """The backward pass computes it again, or has no use for it."""


@dataclass(frozen=True, slots=True)
class Maker:
    """The equation that computed a value.

    Attributes:
        primitive: Its name, for example ``dot_general``; empty where the value
            is an argument of the step or what made it is not known.
        scope: The name stack from the step's function inwards.
        file: Python file, named as the module's source locations name it.
        line: Line there.
    """

    primitive: str
    scope: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class NamedPoint:
    """One use of ``jax.ad_checkpoint.checkpoint_name`` in the forward pass.

    Attributes:
        name: The name that policies know it by.
        dtype: Element type in HLO's spelling.
        dimensions: Of one value; inside a ``shard_map`` of one device's part.
        scope: The name stack of the naming.
        file: Python file of the naming.
        line: Line there.
        maker: What computed the value.
        loops: Lengths of the loops around it, the outermost first; ``None`` for
            one that the jaxpr does not tell.
        equations: How many equations are alike in all this, as in layers that a
            Python loop unrolls.
        crossing: Whether the backward pass of the jaxpr reads the value, or
            what only reshapes it.
        recomputed: How many equations compute it again for the backward pass.
    """

    name: str
    dtype: str
    dimensions: tuple[int, ...]
    scope: str
    file: str | None
    line: int | None
    maker: Maker
    loops: tuple[int | None, ...]
    equations: int
    crossing: Crossing
    recomputed: int

    @property
    def elements(self) -> int:
        """Elements of one value."""
        return prod(self.dimensions)

    @property
    def values(self) -> int | None:
        """How many values there are in one step; ``None`` where a loop's length is not known."""
        total = self.equations
        for length in self.loops:
            if length is None:
                return None
            total *= length
        return total


@dataclass(frozen=True, slots=True)
class RematPolicy:
    """What the ``jax.checkpoint`` regions of a step were told to keep.

    Attributes:
        words: The policy as the code that made it spells it.
        saves: Names that it keeps on the device.
        offloads: Names that it keeps in the host's memory.
        drops: Names that it does not keep, of a policy that keeps all others.
        saves_products: Whether it keeps results of products on the device.
        offloads_products: Whether it keeps them in the host's memory.
        host: The memory kind that it offloads to; empty where it offloads nothing.
    """

    words: str
    saves: tuple[str, ...] = ()
    offloads: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    saves_products: bool = False
    offloads_products: bool = False
    host: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it knows."""
        return (*self.saves, *self.offloads, *self.drops)

    @property
    def offloads_anything(self) -> bool:
        """Whether it asks for anything to be kept in the host's memory."""
        return bool(self.offloads) or self.offloads_products


@dataclass(frozen=True, slots=True)
class NamedPoints:
    """All of them.

    Attributes:
        points: In the order of the jaxpr.
        policies: The policies of the step's ``jax.checkpoint`` regions.
        names: Every name that the step gives to a value, also to such as no
            result needs; ``None`` where that was not looked for.
    """

    points: tuple[NamedPoint, ...] = ()
    policies: tuple[RematPolicy, ...] = ()
    names: tuple[str, ...] | None = ()

    @classmethod
    def from_document(cls, document: Any) -> NamedPoints | None:
        """Rebuild what ``dataclasses.asdict`` and JSON made of it.

        Raises:
            KeyError, TypeError, ValueError: It is something else.
        """
        if document is None:
            return None
        names = document.get("names")
        return cls(
            tuple(_point(point) for point in document["points"]),
            tuple(_policy(policy) for policy in document["policies"]),
            None if names is None else _texts(names),
        )


def _policy(document: Any) -> RematPolicy:
    if isinstance(document, str):  # as it was written before its names were read
        return RematPolicy(document)
    return RematPolicy(
        words=_text(document["words"]),
        saves=_texts(document["saves"]),
        offloads=_texts(document["offloads"]),
        drops=_texts(document["drops"]),
        saves_products=bool(document["saves_products"]),
        offloads_products=bool(document["offloads_products"]),
        host=_text(document["host"]),
    )


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)


def _point(document: Any) -> NamedPoint:
    maker = document["maker"]
    return NamedPoint(
        name=_text(document["name"]),
        dtype=_text(document["dtype"]),
        dimensions=tuple(int(size) for size in document["dimensions"]),
        scope=_text(document["scope"]),
        file=_file(document["file"]),
        line=_number(document["line"]),
        maker=Maker(
            _text(maker["primitive"]),
            _text(maker["scope"]),
            _file(maker["file"]),
            _number(maker["line"]),
        ),
        loops=tuple(_number(length) for length in document["loops"]),
        equations=int(document["equations"]),
        crossing=Crossing(document["crossing"]),
        recomputed=int(document["recomputed"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where text is expected")
    return value


def _file(value: Any) -> str | None:
    return None if value is None else _text(value)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
