"""What an argument is to a step, guessed from its name where nobody says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from hloscope.ir.signature import Role

__all__ = ["find_updated", "guess_roles"]

Dimensions = tuple[int, ...]

# Names under which training steps keep what they update. Parameters alone may
# belong to an inference program, which has no reason to give them back.
_STATE = re.compile(r"(\w*_)?(state|optimizer|opt|ema|carry)(_\w*)?", re.IGNORECASE)
_PARAMETERS = re.compile(r"(\w*_)?(params?|parameters|weights|variables|model)", re.IGNORECASE)
_OTHERS: tuple[tuple[Role, re.Pattern[str]], ...] = (
    (Role.RNG, re.compile(r"(\w*_)?(rngs?|keys?|seeds?|prng)", re.IGNORECASE)),
    (Role.FROZEN, re.compile(r"(\w*_)?frozen(_\w*)?", re.IGNORECASE)),
    (
        Role.BATCH,
        re.compile(
            r"(\w*_)?(batch(es)?|inputs?|tokens?|images?|labels?|targets?|data)|x|y",
            re.IGNORECASE,
        ),
    ),
)


def guess_roles(names: Iterable[str], updated: Collection[str]) -> dict[str, Role]:
    """The role of each argument.

    Args:
        names: The arguments' names.
        updated: Those that the step updates: they are state whatever they are
            called. :func:`find_updated` tells which of the donated ones are.
    """
    names = list(dict.fromkeys(names))
    trains = any(_STATE.fullmatch(name) for name in names)
    return {name: _role(name, updated, trains=trains) for name in names}


def find_updated(
    donated: Mapping[str, Iterable[Dimensions]], results: Iterable[Dimensions]
) -> set[str]:
    """Which donated arguments the step updates, by name and shape.

    A donated argument that is named like state or parameters is one; of the
    others, one that a result is left for to be its new value: as large in every
    dimension, whatever its dtype. A batch that is donated for nothing is none.

    Args:
        donated: Dimensions of the leaves of each argument with a donated leaf.
        results: Dimensions of the results that may be new values.
    """
    free = Counter(results)
    updated: set[str] = set()
    for name in sorted(donated, key=_unlike_state):
        leaves = Counter(donated[name])
        # Any step returns some scalar; it says nothing beside larger leaves.
        if any(leaves):
            del leaves[()]
        matched = leaves & free
        if matched or _unlike_state(name) < _UNNAMED:
            updated.add(name)
            free -= matched
    return updated


_UNNAMED = 2


def _unlike_state(name: str) -> int:
    """0 for a name of training state, 1 of parameters, 3 of a batch and the like, else 2."""
    if _STATE.fullmatch(name):
        return 0
    if _PARAMETERS.fullmatch(name):
        return 1
    return 3 if any(pattern.fullmatch(name) for _, pattern in _OTHERS) else _UNNAMED


def _role(name: str, updated: Collection[str], *, trains: bool) -> Role:
    if name in updated or _STATE.fullmatch(name):
        return Role.STATE
    if trains and _PARAMETERS.fullmatch(name):
        return Role.STATE
    for role, pattern in _OTHERS:
        if pattern.fullmatch(name):
            return role
    return Role.OTHER
