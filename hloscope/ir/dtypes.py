"""XLA's element types and their widths."""

from __future__ import annotations

__all__ = ["BITS", "KEYWORD_TYPES", "is_complex", "is_floating", "is_integer"]

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


def is_floating(dtype: str) -> bool:
    """Whether ``dtype`` is a real floating-point type."""
    return dtype.startswith(("f", "bf"))


def is_integer(dtype: str) -> bool:
    """Whether ``dtype`` is a signed or unsigned integer; ``pred`` is not."""
    return dtype[0] in "su" and dtype in BITS


def is_complex(dtype: str) -> bool:
    """Whether ``dtype`` is complex."""
    return dtype in ("c64", "c128")
