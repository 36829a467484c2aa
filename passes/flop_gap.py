"""How two answers to one question differ, with a reason for each part of the difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from hloscope.ir.metadata import SourceLocation

__all__ = ["Gap", "GapPart", "Reason"]


class Reason(Enum):
    """Why two counts differ: what a report calls it, and whether that explains anything."""

    # From XLA's cost analysis to the optimized HLO's products.
    ELEMENTWISE = "elementwise work, which XLA counts and the products leave out"
    CUSTOM_CALLS = "library calls and kernels, which XLA does not see into"
    OTHER_RULE = "products that XLA counts by another rule"
    LOOPS = "loops, whose bodies XLA counts once"
    ROUNDING = "rounding: XLA adds up in single precision"
    NOT_BY_RULE = "in XLA's figure by no rule known here", False
    # From the jaxpr to the optimized HLO's products.
    XLA_REMAT = "computed again by XLA's own rematerialization"
    ATTENTION_SCORES = "attention scores computed again in fused backward kernels"
    DENSE_RAGGED = "ragged products run over all groups, on zeros"
    REPLICATED = "products not split over all devices"
    PADDING = "sizes padded by the backend"
    DEAD_CODE = "dead code removed"
    MERGED = "repeated products merged"
    REMAT_UNDONE = "recomputation merged with the first run"
    MULTIPLIED_OUT = "small products written as multiplications and sums"
    UNKNOWN_CALLS = "at the lines of custom calls that are not understood", False
    NOT_IN_JAXPR = "in the HLO alone", False
    NOT_IN_HLO = "in the jaxpr alone", False
    # In both.
    MASKED = "pairs that attention's mask hides, left out by --causal half"

    def __init__(self, title: str, explains: bool = True) -> None:
        self.title = title
        self.explains = explains


@dataclass(frozen=True, slots=True)
class GapPart:
    """What one reason accounts for.

    Attributes:
        reason: The reason.
        flops: FLOPs that it adds to the HLO's products, or takes from them.
        evidence: What it rests on, in a few words; may be empty.
        places: Lines of Python that it concerns, where these are known.
    """

    reason: Reason
    flops: Fraction
    evidence: str = ""
    places: tuple[SourceLocation, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """The way from another count to that of the optimized HLO's products.

    Attributes:
        before: The other count's FLOPs.
        after: The FLOPs of the HLO's products.
        parts: The reasons; their FLOPs sum up to ``after - before`` exactly.
    """

    before: Fraction
    after: Fraction
    parts: tuple[GapPart, ...]

    def __post_init__(self) -> None:
        if self.before + total(self.parts) != self.after:
            raise ValueError("the parts of a gap do not sum up to it")

    @property
    def unexplained(self) -> Fraction:
        """FLOPs in both directions that no reason accounts for."""
        return total((part for part in self.parts if not part.reason.explains), absolute=True)

    @property
    def residue(self) -> Fraction | None:
        """The unexplained part as a share of the HLO's products; ``None`` without any."""
        return self.unexplained / self.after if self.after else None


def total(parts: Iterable[GapPart], *, absolute: bool = False) -> Fraction:
    """FLOPs of several parts together."""
    return sum((abs(p.flops) if absolute else p.flops for p in parts), Fraction(0))
