"""What a report on FLOPs is asked to show. Imports nothing, as the command line's help needs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from hloscope.errors import UsageError

__all__ = ["DEPTH", "FlopView", "Grouping"]

DEPTH = 2
"""How many parts of a scope tell one group from another unless asked otherwise."""


class Grouping(StrEnum):
    """What the FLOPs are summed by."""

    SCOPE = "scope"
    OP = "op"
    DTYPE = "dtype"
    KIND = "kind"
    SOURCE = "source"
    COMPUTATION = "computation"


@dataclass(frozen=True, slots=True)
class FlopView:
    """What a report on FLOPs shows beside the totals.

    Attributes:
        by: What the products are summed by, if by anything.
        depth: Parts of a scope that are kept.
        top: Instructions (or groups of ``by``) to list.
        causal: How masked attention counts: ``full`` or ``half``.
        everything: Every table, whole, with a column for each fact: for
            programs that read the report.
    """

    by: Grouping | None = None
    depth: int = DEPTH
    top: int | None = None
    causal: Literal["full", "half"] = "full"
    everything: bool = False

    @classmethod
    def of(
        cls,
        *,
        by: Grouping | str | None,
        depth: int,
        top: int | None,
        causal: str,
        everything: bool,
    ) -> FlopView:
        """A view from a caller's words.

        Raises:
            UsageError: ``by`` or ``causal`` is none of the words that there
                are, or a number is too small.
        """
        if by is not None and by not in list(Grouping):
            raise UsageError(
                f"FLOPs cannot be summed by {by!r}", hint=f"Choose one of {', '.join(Grouping)}."
            )
        if causal not in ("full", "half"):
            raise UsageError(
                f"there is no causal convention {causal!r}",
                hint="full counts every pair of a query and a key, half those the mask leaves.",
            )
        if depth < 1 or (top is not None and top < 1):
            raise UsageError("--depth and --top take a whole number of 1 or more")
        convention: Literal["full", "half"] = "half" if causal == "half" else "full"
        return cls(None if by is None else Grouping(by), depth, top, convention, everything)
