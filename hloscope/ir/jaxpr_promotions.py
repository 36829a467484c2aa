"""Where a step's jaxpr widens a value because a wider one meets it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["JaxprPromotion", "JaxprPromotions"]


@dataclass(frozen=True, slots=True)
class JaxprPromotion:
    """Widenings of one line that JAX's type promotion made, alike in types and partner.

    Attributes:
        file: Python file, named as the module's source locations name it;
            empty where JAX does not know it.
        line: Line in it, from 1; 0 where JAX does not know it.
        operation: The primitive in which the two values meet, such as ``mul``.
        source: Type of the value that is widened, in HLO's spelling.
        result: Type that it is widened to.
        dimensions: Its dimensions; of several the largest.
        count: How many such conversions run, each unknown loop and each branch once.
        elements: Elements that all of them convert; inside ``shard_map`` those
            of one device.
        exact: Whether no loop of unknown length and no branch is around them.
        partner: ``number`` where the wider value is a scalar, also a broadcast
            one, else ``array``.
        partner_weak: Whether the wider value is weakly typed.
        partner_text: What the wider value is: its value where it is a literal,
            else the primitive that makes it, ``argument`` or ``closed over``;
            empty where it is handed into a loop or a branch.
    """

    file: str
    line: int
    operation: str
    source: str
    result: str
    dimensions: tuple[int, ...]
    count: int
    elements: int
    exact: bool
    partner: str
    partner_weak: bool
    partner_text: str


@dataclass(frozen=True, slots=True)
class JaxprPromotions:
    """The promotions of a step, those of most elements first."""

    rows: tuple[JaxprPromotion, ...] = ()

    @classmethod
    def from_document(cls, data: Mapping[str, Any] | None) -> JaxprPromotions | None:
        """What ``dataclasses.asdict`` made of promotions, read back.

        Raises:
            KeyError: A field is missing.
            TypeError: A field is of another type.
            ValueError: As :class:`TypeError`.
        """
        if data is None:
            return None
        return cls(tuple(_promotion(row) for row in data["rows"]))


def _promotion(row: Mapping[str, Any]) -> JaxprPromotion:
    return JaxprPromotion(
        file=str(row["file"]),
        line=int(row["line"]),
        operation=str(row["operation"]),
        source=str(row["source"]),
        result=str(row["result"]),
        dimensions=tuple(int(size) for size in row["dimensions"]),
        count=int(row["count"]),
        elements=int(row["elements"]),
        exact=bool(row["exact"]),
        partner=str(row["partner"]),
        partner_weak=bool(row["partner_weak"]),
        partner_text=str(row["partner_text"]),
    )
