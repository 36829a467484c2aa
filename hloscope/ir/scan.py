"""Brackets and quotes in HLO text: the one place that knows how to skip over them.

Values of attributes nest brackets and hold strings that hold brackets, so
neither a split at commas nor a search for the next brace finds their ends.
"""

from __future__ import annotations

import re

__all__ = [
    "BALANCED",
    "STRING",
    "ScanError",
    "count_instructions",
    "end_of_value",
    "skip_blank",
    "split_list",
    "unescape",
]


class ScanError(ValueError):
    """Brackets or quotes that do not match; ``offset`` is where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


STRING = r'"(?:[^"\\]++|\\.)*+"'
"""Pattern of a quoted string with escapes."""


_INSTRUCTION = re.compile(r"^[ \t]+(?:ROOT )?%?[\w.\-]+ = ", re.MULTILINE)


def count_instructions(text: str) -> int:
    """Instructions of a module that XLA printed, one a line, without reading them."""
    return sum(1 for _ in _INSTRUCTION.finditer(text))


def _nested(depth: int) -> str:
    inner = rf"[^{{}}\"]++|{STRING}"
    pattern = rf"\{{(?:{inner})*+\}}"
    for _ in range(depth):
        pattern = rf"\{{(?:{inner}|{pattern})*+\}}"
    return pattern


BALANCED = _nested(6)
"""Pattern of ``{...}`` nested up to seven deep, which no real attribute exceeds;
:func:`end_of_value` takes over where it does not match."""

_INTEREST = re.compile(r'["{}()\[\]]')
_STRING = re.compile(STRING, re.DOTALL)
_BLANK = re.compile(r"(?:\s++|/\*.*?\*/|//[^\n]*+)*+", re.DOTALL)
_CLOSES = {"}": "{", ")": "(", "]": "["}


def skip_blank(text: str, at: int) -> int:
    """Offset of the first character from ``at`` on that is no blank and no comment."""
    match = _BLANK.match(text, at)
    return match.end() if match else at


def end_of_value(text: str, at: int) -> int:
    """Offset just behind the bracket that closes the one at ``at``.

    Raises:
        ScanError: It never closes, or another kind of bracket closes it.
    """
    open_brackets: list[str] = []
    position = at
    while match := _INTEREST.search(text, position):
        mark = match.group()
        position = match.end()
        if mark == '"':
            string = _STRING.match(text, match.start())
            if string is None:
                raise ScanError("a string never ends", match.start())
            position = string.end()
        elif mark in _CLOSES:
            if not open_brackets or open_brackets.pop() != _CLOSES[mark]:
                raise ScanError(f"{mark!r} closes nothing", match.start())
            if not open_brackets:
                return position
        else:
            open_brackets.append(mark)
    raise ScanError(f"{text[at : at + 1]!r} never closes", at)


def split_list(text: str, at: int = 0, end: int | None = None) -> list[str]:
    """Split at the commas outside brackets and quotes; comments are dropped.

    Raises:
        ScanError: Brackets or quotes do not match.
    """
    end = len(text) if end is None else end
    parts: list[str] = []
    start = position = skip_blank(text, at)
    while position < end:
        mark = text[position]
        if mark in '"{([':
            if mark == '"':
                string = _STRING.match(text, position)
                if string is None:
                    raise ScanError("a string never ends", position)
                position = string.end()
            else:
                position = end_of_value(text, position)
        elif mark == ",":
            parts.append(text[start:position].strip())
            start = position = skip_blank(text, position + 1)
        elif mark in _CLOSES:
            raise ScanError(f"{mark!r} closes nothing", position)
        else:
            position += 1
    if start < end or parts:
        parts.append(text[start:end].strip())
    return parts


_BYTE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2}))")
_ESCAPE = re.compile(r"((?:\\(?:[0-7]{1,3}|[xX][0-9a-fA-F]{1,2}))+)|\\(.)", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def unescape(text: str) -> str:
    """Undo C escapes as XLA's printer writes them: octal, hex and single letters.

    Escaped bytes in a row are UTF-8 where they are valid as such, else one
    character a byte.
    """
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_plain, text)


def _plain(match: re.Match[str]) -> str:
    escaped, letter = match.groups()
    if letter is not None:
        return _NAMED.get(letter, letter)
    data = bytes(
        int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)
        for octal, hexadecimal in _BYTE.findall(escaped)
    )
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
