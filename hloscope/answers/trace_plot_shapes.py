"""Shapes of a timeline: an axis of time, areas of columns, brackets of steps, a legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.timeline_bins import Bins

__all__ = ["Axis", "area", "brackets", "legend", "vertical_grid"]

_FINE = 1000  # steps of a column's height
_PS_OF_MS = 10**9
_TICKS = 10
_LETTER = 7.2  # about that of the usual sans-serif at 12 px, in pixels
_DIGIT = 6.2  # at 10 px
_MOST_BRACKETS = 1000


@dataclass(frozen=True, slots=True)
class Axis:
    """From picoseconds to pixels.

    Attributes:
        left: Where it begins, in pixels.
        width: How long it is, in pixels.
        origin: The time there, in picoseconds.
        span: Time that it stands for, in picoseconds.
    """

    left: float
    width: float
    origin: int
    span: int

    def x(self, time: int) -> float:
        """Where a time is; one beyond an end is there."""
        return self.left + self.width * min(max((time - self.origin) / self.span, 0.0), 1.0)

    def ticks(self) -> Iterator[tuple[int, str]]:
        """Round times and how they are written in ms."""
        step = _round(self.span / _PS_OF_MS / _TICKS)
        decimals = max(-int(np.floor(np.log10(step) + 1e-9)), 0)
        for number in range(int(self.span / _PS_OF_MS / step + 1e-9) + 1):
            at = number * step
            yield self.origin + round(at * _PS_OF_MS), f"{at:,.{decimals}f}"


def _round(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** np.floor(np.log10(max(least, 1e-9)))
    return float(next(f * power for f in (1, 2, 5, 10) if f * power >= least * (1 - 1e-9)))


def vertical_grid(axis: Axis, top: float, bottom: float) -> Iterator[str]:
    """Lines at round times, and the times below them."""
    for time, text in axis.ticks():
        x = axis.x(time)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{bottom:.1f}"/>'
        yield (
            f'<text class="small" x="{x:.1f}" y="{bottom + 14:.1f}" text-anchor="middle">'
            f"{text}</text>"
        )


def area(
    bins: Bins, times: NDArray[np.int64], left: float, bottom: float, width: float, height: float
) -> str:
    """Attributes of a path that fills, of each column, the share that ``times`` are of it.

    Equal neighbours are one run, so what does not change takes no room.
    """
    lengths = np.maximum(np.diff(bins.edges), 1)
    shares = np.rint(times / lengths * _FINE).astype(np.int64)
    edges = np.flatnonzero(np.diff(shares)) + 1
    starts = np.concatenate((np.zeros(1, np.int64), edges))
    runs = np.diff(np.append(starts, len(shares)))
    rises = np.diff(shares[starts], prepend=0)
    moves = "".join(
        f"v{rise}h{run}" if rise else f"h{run}"
        for rise, run in zip(rises.tolist(), runs.tolist(), strict=True)
    )
    scale = f"{width / max(len(shares), 1):.6g} {-height / _FINE:.6g}"
    return f'transform="translate({left:.2f} {bottom:g}) scale({scale})" d="M0 0{moves}V0z"'


def brackets(axis: Axis, steps: Iterable[tuple[int, int, int]], top: float) -> Iterator[str]:
    """Steps as brackets with their numbers above; those that are out of the picture are not.

    Args:
        axis: Of time.
        steps: Number, beginning and end of each.
        top: Where the lane begins, in pixels; it takes 20.
    """
    low, high = axis.origin, axis.origin + axis.span
    inside = [step for step in steps if step[2] > low and step[1] < high]
    if not inside:
        return
    yield f'<path class="step" d="{_brackets(axis, inside, top)}"/>'
    widest = max(len(str(number)) for number, _, _ in inside) * _DIGIT + 4
    distance = (axis.x(inside[-1][2]) - axis.x(inside[0][1])) / len(inside)
    each = max(round(_round(widest / distance)), 1) if distance < widest else 1
    for number, begin, end in inside:
        if number % each == 0:
            x = (axis.x(begin) + axis.x(end)) / 2
            yield (
                f'<text class="small" x="{x:.1f}" y="{top + 9:g}" text-anchor="middle">'
                f"{number}</text>"
            )


def _brackets(axis: Axis, steps: Sequence[tuple[int, int, int]], top: float) -> str:
    """One path of all; of more than there are pixels for, every so many-th."""
    each = -(-len(steps) // _MOST_BRACKETS)
    low, high = axis.origin, axis.origin + axis.span
    shapes = []
    for _, begin, end in steps[::each]:
        left, right = axis.x(begin), axis.x(end)
        # An edge that is out of the picture is left open.
        up = f"M{left:.1f} {top + 17:g}V{top + 12:g}" if begin >= low else ""
        up = up or f"M{left:.1f} {top + 12:g}"
        shapes.append(f"{up}H{right:.1f}" + (f"V{top + 17:g}" if end <= high else ""))
    return "".join(shapes)


def legend(
    entries: Iterable[tuple[str, str]], left: float, top: float, right: float
) -> Iterator[str]:
    """Boxes, each of a class, with its words; one line after another.

    Args:
        entries: Class and words of each.
        left: Where the lines begin.
        top: Where the first one does.
        right: Where a line ends at most.
    """
    x, y = left, top
    for kind, words in entries:
        width = 18 + _LETTER * len(words)
        if x + width > right and x > left:
            x, y = left, y + 18
        yield f'<rect class="{kind}" x="{x:.0f}" y="{y:g}" width="12" height="12"/>'
        yield f'<text x="{x + 17:.0f}" y="{y + 10:g}">{escape(words)}</text>'
        x += width + 14
