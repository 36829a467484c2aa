"""Pytree paths as JAX prints them, taken apart into keys."""

from __future__ import annotations

import re

__all__ = ["Keys", "ends_alike", "keys_of", "plain_keys", "root_of"]

Keys = tuple[str, ...]

# A key is an attribute (.value), an index or a dictionary key ([0], ['w']), or
# at the front the name of the argument. Quoted keys may hold brackets.
_KEY = re.compile(r"""\.[^.\[\]]+|\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]|[^.\[]+""")


def keys_of(path: str) -> Keys:
    """The keys of a path: ``state['params'].w`` gives ``state``, ``['params']``, ``.w``.

    The path of a result begins with no name, so that its first key is an index
    or an attribute already.
    """
    return tuple(_KEY.findall(path))


def plain_keys(path: str) -> Keys | None:
    """The keys without dots, brackets and quotes: ``state['mu'][0].w`` gives ``state mu 0 w``.

    ``None`` for what is no pytree path: a scope has slashes between its names.
    """
    keys = keys_of(path)
    if any("/" in key for key in keys if not key.startswith("[")):
        return None
    return tuple(_plain(key) for key in keys)


def _plain(key: str) -> str:
    if key.startswith("."):
        return key[1:]
    if not key.startswith("["):
        return key
    inside = key[1:-1]
    quoted = len(inside) > 1 and inside[0] == inside[-1] and inside[0] in "'\""
    return inside[1:-1] if quoted else inside


def ends_alike(result: str, argument: str) -> bool:
    """Whether a result lies where the leaf of an argument does, behind the argument's name."""
    inside = keys_of(argument)[1:]
    return bool(inside) and keys_of(result)[-len(inside) :] == inside


def root_of(path: str) -> str:
    """The argument that a leaf belongs to: its first key."""
    keys = keys_of(path)
    return keys[0] if keys else path
