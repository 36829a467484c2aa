"""What an argument is to a step, guessed from its name where nobody says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from hloscope.ir.signature import Role

__all__ = ["guess_roles"]

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
        updated: Those of which a leaf is donated or aliased: they are state
            whatever they are called.
    """
    names = list(dict.fromkeys(names))
    trains = any(_STATE.fullmatch(name) for name in names)
    return {name: _role(name, updated, trains=trains) for name in names}


def _role(name: str, updated: Collection[str], *, trains: bool) -> Role:
    if name in updated or _STATE.fullmatch(name):
        return Role.STATE
    if trains and _PARAMETERS.fullmatch(name):
        return Role.STATE
    for role, pattern in _OTHERS:
        if pattern.fullmatch(name):
            return role
    return Role.OTHER
