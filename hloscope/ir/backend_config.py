"""``backend_config``: raw JSON, a quoted string, or an MLIR attribute dictionary."""

from __future__ import annotations

import json
import re
from typing import Any

from hloscope.ir.scan import STRING, ScanError, split_list, unescape

__all__ = ["parse_backend_config"]


def parse_backend_config(text: str) -> dict[str, Any]:
    """Decode the value of ``backend_config=`` (or the bytes of the proto field).

    What is neither JSON nor an MLIR dictionary (bytes that only a custom call
    understands) comes back as ``{"opaque": text}``; nothing is dropped.
    """
    text = text.strip()
    if text.startswith('"'):
        text = unescape(text[1:-1]).strip()
    if not text:
        return {}
    if not text.startswith("{"):
        return {"opaque": text}
    inside = text[1:].lstrip()
    if inside.startswith("}"):
        return {}
    try:
        if inside.startswith('"'):
            decoded = json.loads(text)
            return decoded if isinstance(decoded, dict) else {"opaque": text}
        return _dictionary(text)
    except (ValueError, ScanError, RecursionError):
        return {"opaque": text}


_TYPE = re.compile(r"\s*[\w<>]+\s*$")
_QUOTED = re.compile(STRING + r"$", re.DOTALL)
_ENTRY = re.compile(r'\s*("?)([\w.$\-]+)\1\s*=\s*(.*)$', re.DOTALL)


def _dictionary(text: str) -> dict[str, Any]:
    """Read ``{name = value : type, ...}``; a key alone is a unit attribute."""
    result: dict[str, Any] = {}
    for part in _whole_arrays(split_list(text.strip()[1:-1])):
        entry = _ENTRY.match(part)
        if entry is None:
            result[part.strip('" ')] = True
        else:
            result[entry.group(2)] = _value(entry.group(3).strip())
    return result


def _whole_arrays(parts: list[str]) -> list[str]:
    """Join the pieces of ``array<i64: 1, 2>``, whose angle brackets are no brackets elsewhere."""
    joined: list[str] = []
    for part in parts:
        if joined and "array<" in joined[-1] and ">" not in joined[-1]:
            joined[-1] += f", {part}"
        else:
            joined.append(part)
    return joined


def _value(text: str) -> Any:
    if text.startswith("{"):
        return _dictionary(text)
    if _QUOTED.match(text):
        return unescape_mlir(text[1:-1])
    if text.startswith("["):
        return [_value(part) for part in split_list(text[1 : text.rindex("]")])]
    if text.startswith("array<"):
        _, _, items = text[6:-1].partition(":")
        return [_value(part) for part in split_list(items)]
    value, colon, of_type = text.rpartition(":")
    if colon and _TYPE.match(of_type):
        return _value(value.strip())
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


_MLIR_ESCAPE = re.compile(r'\\([0-9A-Fa-f]{2}|["\\nt])')
_MLIR_NAMED = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def unescape_mlir(text: str) -> str:
    """Undo MLIR's string escapes, where a backslash and two hex digits are one byte."""
    return _MLIR_ESCAPE.sub(lambda m: _MLIR_NAMED.get(m.group(1)) or chr(int(m.group(1), 16)), text)
