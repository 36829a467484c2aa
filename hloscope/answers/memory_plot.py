"""The memory of a program over its schedule, as an SVG picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from hloscope import units
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import MemoryUse

__all__ = ["plot_memory"]

_WIDTH, _HEIGHT = 960, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 48, 44
_COLUMNS = 800  # more points than pixels show nothing more
_STYLE = (
    "text{font:12px sans-serif;fill:#333}"
    ".title{font-size:14px;font-weight:bold}"
    ".resident{fill:#b9c7d8}.temporary{fill:#4c78a8}"
    ".grid{stroke:#ddd}.peak{stroke:#c33;stroke-dasharray:4 3}.chip{stroke:#333}"
)


def plot_memory(use: MemoryUse, title: str, *, chip_bytes: int | None = None) -> str:
    """Draw what is resident and, on top of it, the temporaries at each instruction.

    The picture depends on nothing but its arguments. Where there are more
    instructions than columns, each column shows the most of its stretch.

    Args:
        use: The memory.
        title: Stands above the picture.
        chip_bytes: Memory of the chip; a line where it is within the picture.

    Returns:
        An SVG document.
    """
    profile = use.ranges.entry.profiles.get(Space.DEVICE)
    live = _thinned(profile.live if profile is not None else [0])
    resident = use.resident
    top = max(max(live) + resident, 1)
    if chip_bytes is not None and top < chip_bytes <= 2 * top:
        top = chip_bytes
    inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(column: float) -> float:
        return _LEFT + inner_width * column / max(len(live), 1)

    def y(size: float) -> float:
        return _TOP + inner_height * (1 - size / top)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="22">{escape(title)}</text>',
    ]
    for quarter in range(5):
        size = top * quarter / 4
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" '
            f'y1="{y(size):.1f}" y2="{y(size):.1f}"/>'
        )
        lines.append(
            f'<text x="{_LEFT - 8}" y="{y(size) + 4:.1f}" text-anchor="end">'
            f"{units.byte_size(int(size))}</text>"
        )
    lines.append(
        f'<rect class="resident" x="{_LEFT}" y="{y(resident):.1f}" width="{inner_width}" '
        f'height="{max(y(0) - y(resident), 0):.1f}"/>'
    )
    points = [f"{x(0):.1f},{y(resident):.1f}"]
    for column, size in enumerate(live):
        points.append(f"{x(column):.1f},{y(resident + size):.1f}")
        points.append(f"{x(column + 1):.1f},{y(resident + size):.1f}")
    points.append(f"{x(len(live)):.1f},{y(resident):.1f}")
    lines.append(f'<polygon class="temporary" points="{" ".join(points)}"/>')
    at = live.index(max(live)) + 0.5
    lines.append(
        f'<line class="peak" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP}" y2="{y(0):.1f}"/>'
    )
    if chip_bytes is not None and chip_bytes <= top:
        lines.append(
            f'<line class="chip" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" '
            f'y1="{y(chip_bytes):.1f}" y2="{y(chip_bytes):.1f}"/>'
        )
        lines.append(
            f'<text x="{_WIDTH - _RIGHT}" y="{y(chip_bytes) - 4:.1f}" text-anchor="end">'
            "the chip's memory</text>"
        )
    under = use.under[-1].name if use.under else ""
    lines.append(
        f'<text x="{_LEFT}" y="40">peak {units.byte_size(use.peak)} under {escape(under)}; '
        "light: arguments, results, constants; dark: temporaries</text>"
    )
    lines.append(
        f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">'
        "instructions of the entry, in order of execution</text>"
    )
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _thinned(live: Sequence[int]) -> Sequence[int]:
    if len(live) <= _COLUMNS:
        return live
    bounds = [len(live) * column // _COLUMNS for column in range(_COLUMNS + 1)]
    return [max(live[low:high]) for low, high in pairwise(bounds)]
