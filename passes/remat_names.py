"""The names that a step's remat policies ask for, against those that the step gives.

A policy that names a value which no line of the model names keeps nothing for it,
and JAX says nothing: with a misspelt name everything is computed again.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.ir.named_points import NamedPoints, RematPolicy
from hloscope.pipeline.analyses import analysis

__all__ = ["PolicyNames", "RematNames", "match_names"]


@dataclass(frozen=True, slots=True)
class PolicyNames:
    """One policy of a step.

    Attributes:
        policy: What it asks for.
        matched: Its names that some value of the step has.
        unmatched: Those that none has.
    """

    policy: RematPolicy
    matched: tuple[str, ...]
    unmatched: tuple[str, ...]

    @property
    def keeps_nothing(self) -> bool:
        """Whether it keeps values by their names only, and none of them is any value's."""
        by_names = not (self.policy.saves_products or self.policy.offloads_products)
        return by_names and bool(self.unmatched) and not self.matched and not self.policy.drops


@dataclass(frozen=True, slots=True)
class RematNames:
    """All policies of a step.

    Attributes:
        policies: Those that know names, in the order of the jaxpr.
        names: Every name that the step gives to a value.
    """

    policies: Sequence[PolicyNames]
    names: tuple[str, ...]

    @property
    def unmatched(self) -> tuple[str, ...]:
        """Names that match nothing, each once."""
        return tuple(dict.fromkeys(name for each in self.policies for name in each.unmatched))

    def nearest(self, name: str) -> str | None:
        """The name of a value that a name is most likely meant to be."""
        close = difflib.get_close_matches(name, self.names, n=1, cutoff=0.6)
        return close[0] if close else None


@analysis
def match_names(points: NamedPoints) -> RematNames:
    """Look each name of each policy up among the names of the step.

    Raises:
        Unavailable: The jaxpr is not known, or was read before names were looked for.
    """
    if points.names is None:
        raise Unavailable("the artifact does not hold the names of its policies; capture it again")
    known = set(points.names)
    return RematNames(
        [
            PolicyNames(
                policy,
                tuple(name for name in policy.names if name in known),
                tuple(name for name in policy.names if name not in known),
            )
            for policy in points.policies
            if policy.names
        ],
        points.names,
    )
