"""XLA's element types and their widths."""

from __future__ import annotations

import re

__all__ = ["BITS", "KEYWORD_TYPES", "is_complex", "is_floating", "is_integer", "jax_name"]

BITS: dict[str, int] = {
    "pred": 8,
    "s1": 1,
    "u1": 1,
    "s2": 2,
    "u2": 2,
    "s4": 4,
    "u4": 4,
    "s8": 8,
    "u8": 8,
    "s16": 16,
    "u16": 16,
    "s32": 32,
    "u32": 32,
    "s64": 64,
    "u64": 64,
    "f4e2m1fn": 4,
    "f6e2m3fn": 6,
    "f6e3m2fn": 6,
    "f8e3m4": 8,
    "f8e4m3": 8,
    "f8e4m3fn": 8,
    "f8e4m3b11fnuz": 8,
    "f8e4m3fnuz": 8,
    "f8e5m2": 8,
    "f8e5m2fnuz": 8,
    "f8e8m0fnu": 8,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
}
"""Significant bits of one element. Without an ``E(n)`` in its layout an element
narrower than a byte still occupies a whole byte in memory."""

KEYWORD_TYPES = frozenset({"token", "opaque"})
"""Types that look like arrays in text but hold no elements."""


_JAX_NAMES = {"pred": "bool_", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"}
_NUMBERED = re.compile(r"([suf])(\d+)(\w*)")
_WORDS = {"s": "int", "u": "uint", "f": "float"}


def jax_name(dtype: str) -> str:
    """What ``jax.numpy`` calls an element type: ``bfloat16``, ``float8_e4m3fn``, ``int32``."""
    if dtype in _JAX_NAMES:
        return _JAX_NAMES[dtype]
    match = _NUMBERED.fullmatch(dtype)
    if match is None:
        return dtype
    kind, bits, rest = match.groups()
    return f"{_WORDS[kind]}{bits}" + (f"_{rest}" if rest else "")


def is_floating(dtype: str) -> bool:
    """Whether ``dtype`` is a real floating-point type."""
    return dtype.startswith(("f", "bf"))


def is_integer(dtype: str) -> bool:
    """Whether ``dtype`` is a signed or unsigned integer; ``pred`` is not."""
    return dtype[0] in "su" and dtype in BITS


def is_complex(dtype: str) -> bool:
    """Whether ``dtype`` is complex."""
    return dtype in ("c64", "c128")
