"""How many window taps of a convolution fall on real input, in one dimension."""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from hloscope.ir.attributes import WindowDimension

__all__ = ["valid_positions"]

_MAX_STEPS = 1 << 22


def valid_positions(input_size: int, output_size: int, window: WindowDimension) -> int:
    """Pairs of an output position and a window tap that meet an element of the input.

    Output ``o`` and tap ``w`` meet position ``o*stride + w*window_dilation -
    padding_low`` of the input, spread out by the base dilation. Positions in
    the padding and in the holes do no arithmetic. Reversal only renumbers taps.

    Args:
        input_size: Elements of the input along the dimension, holes not counted.
        output_size: Elements of the result along it.
        window: Window, strides, padding and dilations.

    Raises:
        ValueError: A stride or a dilation is below one, or every way of
            counting would take millions of steps.
    """
    if window.stride < 1 or window.window_dilation < 1 or window.base_dilation < 1:
        raise ValueError("its window has a stride or a dilation below one")
    if input_size < 1 or output_size < 1 or window.size < 1:
        return 0
    return _count(
        input_size,
        output_size,
        window.size,
        window.stride,
        window.window_dilation,
        window.base_dilation,
        -window.padding_low,
    )


@lru_cache(maxsize=4096)
def _count(n: int, outputs: int, taps: int, s: int, w: int, b: int, shift: int) -> int:
    """Pairs ``(o, t)`` with ``o*s + t*w + shift`` a multiple of ``b`` in ``[0, n*b)``.

    Three ways, of which the one with the fewest steps is taken: tap by tap,
    output by output (the same with the roles exchanged), or, where the base is
    hardly dilated, residue by residue of the taps.
    """
    steps = min(outputs, taps, b)
    if steps > _MAX_STEPS:
        raise ValueError("its window is too large to count its positions")
    if steps == b and b < min(outputs, taps):
        return _by_residue(n, outputs, taps, s, w, b, shift)
    if outputs < taps:
        outputs, taps, s, w = taps, outputs, w, s
    common = gcd(s, b)
    period = b // common
    inverse = pow(s // common, -1, period) if period > 1 else 0
    total = 0
    for tap in range(taps):
        offset = tap * w + shift
        if offset % common:
            continue
        low = max(0, -(offset // s))
        high = min(outputs - 1, ((n - 1) * b - offset) // s)
        if low > high:
            continue
        first = (-(offset // common) * inverse) % period if period > 1 else 0
        total += (high - first) // period - (low - 1 - first) // period
    return total


def _by_residue(n: int, outputs: int, taps: int, s: int, w: int, b: int, shift: int) -> int:
    """Sum over ``t = r + b*j``: then ``o`` has one residue too, and both run freely."""
    common = gcd(s, b)
    period = b // common
    inverse = pow(s // common, -1, period) if period > 1 else 0
    total = 0
    for residue in range(b):
        offset = residue * w + shift
        if offset % common:
            continue
        first = (-(offset // common) * inverse) % period if period > 1 else 0
        # o = first + period*k and t = residue + b*j meet base element
        # (step_o*k + step_t*j + start) / b, a whole number that must lie in [0, n).
        ks = -((first - outputs) // period) if first < outputs else 0
        js = -((residue - taps) // b)
        start = (first * s + offset) // b
        total += _pairs_below(n, ks, js, period * s // b, w, start)
        total -= _pairs_below(0, ks, js, period * s // b, w, start)
    return total


def _pairs_below(limit: int, ks: int, js: int, a: int, c: int, start: int) -> int:
    """Pairs ``0 <= k < ks``, ``0 <= j < js`` with ``a*k + c*j + start < limit``."""
    room = limit - 1 - start
    if room < 0 or ks <= 0:
        return 0
    # Rows j whose every k fits need no sum; rows with no room at all drop out.
    full = min(js, (room - a * (ks - 1)) // c + 1) if room >= a * (ks - 1) else 0
    last = min(js - 1, room // c)
    if last < full:
        return full * ks
    # Each row j in [full, last] has floor((room - c*j) / a) + 1 pairs; counted from
    # the last row backwards the terms grow, as the sum below wants them.
    rows = last - full + 1
    return full * ks + rows + _floor_sum(rows, a, c, room - c * last)


def _floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Sum of ``(a*i + b) // m`` for ``0 <= i < n``, in logarithmic time; ``a, b >= 0``."""
    total = 0
    while True:
        total += (n - 1) * n // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        reach = a * n + b
        if reach < m:
            return total
        n, b, m, a = reach // m, reach % m, a, m
