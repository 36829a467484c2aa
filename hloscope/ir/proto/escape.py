"""Strings as XLA's text prints them: quotes, C escapes, raw JSON dictionaries."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["dictionary_or_string", "numbered", "quoted"]

_NAMED = {9: r"\t", 10: r"\n", 13: r"\r", 34: r"\"", 39: r"\'", 92: r"\\"}
_ESCAPES = {
    code: _NAMED.get(code, f"\\{code:03o}")
    for code in range(256)
    if code in _NAMED or not 32 <= code < 127
}
_PLAIN = re.compile(r"""[^\x00-\x1f"'\\\x7f-\xff]*+""")


def quoted(value: str | bytes) -> str:
    """The value in double quotes; bytes outside printable ASCII as octal escapes."""
    raw = value.encode() if isinstance(value, str) else value
    text = raw.decode("latin-1")
    return f'"{text}"' if _PLAIN.fullmatch(text) else f'"{text.translate(_ESCAPES)}"'


def numbered(parts: Iterable[str]) -> str:
    """The parts with commas between them and a comment before each fifth."""
    return ", ".join(
        f"/*index={k}*/{part}" if k and k % 5 == 0 else part for k, part in enumerate(parts)
    )


_TOKEN = re.compile(r'[^{}"]*+(?:("(?:[^"\\]++|\\.)*+")|([{}])|$)', re.DOTALL)


def dictionary_or_string(value: str | bytes) -> str:
    """The value as it is where it is one ``{...}`` whose braces match, quoted otherwise."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if _is_dictionary(text.strip()):
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return quoted(value)


def _is_dictionary(text: str) -> bool:
    if not text.startswith("{"):
        return False
    depth = position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        brace = match.group(2)
        if brace == "{":
            depth += 1
        elif brace == "}":
            depth -= 1
            if depth == 0:
                return position == len(text)
        elif match.group(1) is None:
            return False
    return False
