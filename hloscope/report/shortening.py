"""Long names cut to a width, each kind of name where it says least."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hloscope.pipeline.findings import Text
from hloscope.pipeline.pytree_paths import plain_keys
from hloscope.units import shorten_middle

__all__ = ["ENOUGH", "LEAST", "plain_path", "shorten"]

LEAST: Mapping[Text, int] = {
    Text.PLAIN: 14,
    Text.NAME: 12,
    Text.PATH: 18,
    Text.SOURCE: 11,
    Text.ARRAY: 20,
}
"""Columns below which a text of each kind says nothing any more."""

ENOUGH: Mapping[Text, int] = {
    Text.PLAIN: 14,
    Text.NAME: 16,
    Text.PATH: 34,
    Text.SOURCE: 20,
    Text.ARRAY: 24,
}
"""Columns in which texts of each kind can mostly be told apart."""

_GAP = ".."
_MOST_KEYS = 60
_VARIABLE = ".value"  # how flax's variables end


def shorten(text: str, width: int, kind: Text) -> str:
    """A text in at most ``width`` columns.

    A source line loses the folders in front of its file, a path the keys or
    scopes in its middle; what is still too long loses letters in its middle.

    Args:
        text: What to shorten; it is given back as it is if it fits.
        width: Columns.
        kind: What the text is.
    """
    if len(text) <= width:
        return text
    return shorten_middle(_SHORTER.get(kind, _as_it_is)(text, width), width)


def _as_it_is(text: str, width: int) -> str:
    del width
    return text


def _source(text: str, width: int) -> str:
    """``a/b/model.py:12`` as the longest of its ends that fits."""
    parts = text.split("/")
    while len(parts) > 1 and len("/".join(parts)) > width:
        del parts[0]
    return "/".join(parts)


def plain_path(text: str) -> str:
    """A pytree path with plain keys between slashes: ``state['mu'][0].value`` as ``state/mu/0``.

    The ``value`` of a variable is left out. A scope is given back as it is.
    """
    return "/".join(_keys(text))


def _path(text: str, width: int) -> str:
    """A scope or pytree path without its middle.

    Of all runs of keys that could go, the last key apart, the one goes that takes
    the fewest letters with it; the first key stays where that makes no difference.
    """
    keys = _keys(text)
    whole = "/".join(keys)
    if len(whole) <= width or len(keys) > _MOST_KEYS:
        return whole
    best = ""
    for head in range(len(keys) - 1):
        for tail in range(head + 1, len(keys)):
            shown = "/".join((*keys[:head], _GAP, *keys[tail:]))
            if len(best) + (head == 0) < len(shown) <= width:
                best = shown
                break
    return best or whole


def _keys(text: str) -> list[str]:
    """The keys of a pytree path, or the names of a scope."""
    found = plain_keys(text) if "[" in text else None
    if found is None:
        return text.split("/")
    keys = list(found)
    if len(keys) > 1 and text.endswith(_VARIABLE):
        del keys[-1]
    return keys


_SHORTER: Mapping[Text, Callable[[str, int], str]] = {Text.SOURCE: _source, Text.PATH: _path}
