"""Numbers as people read them: three significant digits and a unit."""

from __future__ import annotations

import math

__all__ = [
    "byte_size",
    "count",
    "flop_rate",
    "flops",
    "ratio",
    "seconds",
    "share",
    "shorten_middle",
    "three_digits",
]

_EXACT_COUNT = 1_000_000  # instruction and parameter counts are quoted; larger ones are compared


def three_digits(value: float) -> str:
    """A number rounded to three significant digits; below 0.001 with an exponent."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        return f"{value:.2e}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    # 9.996 rounds to 10.0, which has a digit more before the point.
    decimals = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


def byte_size(value: float) -> str:
    """Bytes in B, KiB, MiB, GiB, TiB; below 1024 exactly."""
    if abs(value) < 1024 and value == int(value):
        return f"{int(value)} B"
    return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def flops(value: float) -> str:
    """Floating-point operations in FLOP, KFLOP, MFLOP, GFLOP, TFLOP and up."""
    if abs(value) < 1000 and value == int(value):
        return f"{int(value)} FLOP"
    return _scaled(value, 1000, tuple(f"{prefix}FLOP" for prefix in _PREFIXES))


def flop_rate(value: float) -> str:
    """Floating-point operations per second, for example ``989 TFLOP/s``."""
    return flops(value) + "/s"


def seconds(value: float) -> str:
    """Seconds in ns, us, ms or s."""
    size = abs(value)
    if size == 0:
        return "0 s"
    for scale, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if size * scale < 999.5:
            return f"{three_digits(value * scale)} {unit}"
    return f"{three_digits(value)} s"


def count(value: float) -> str:
    """A plain number: integers exactly below a million, else with K, M, G, T."""
    if value == int(value) and abs(value) < _EXACT_COUNT:
        return f"{int(value):,}"
    if abs(value) < 1000:
        return three_digits(value)
    return _scaled(value, 1000, _PREFIXES).rstrip()


def ratio(value: float) -> str:
    """A factor, for example ``1.25x``."""
    return three_digits(value) + "x"


def share(value: float) -> str:
    """A part of one as per cent: 0.125 is ``12.5%``."""
    return three_digits(value * 100) + "%"


def shorten_middle(text: str, width: int) -> str:
    """Cut a text to ``width`` characters by replacing its middle with ``...``.

    The end of a scope name says the operation, so it keeps a little more of it.
    """
    if len(text) <= width:
        return text
    if width <= 3:
        return text[:width]
    kept = width - 3
    head = kept * 2 // 5
    return text[:head] + "..." + text[len(text) - (kept - head) :]


_PREFIXES = ("", "K", "M", "G", "T", "P", "E")


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    """The smallest prefix under which the rounded number stays below 1000."""
    *smaller, largest = units
    for unit in smaller:
        if abs(value) < 999.5:
            return f"{three_digits(value)} {unit}"
        value /= base
    return f"{three_digits(value)} {largest}"
