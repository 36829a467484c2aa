"""A run over time as an SVG picture: what each device did, and when its steps were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

import numpy as np

from hloscope import units
from hloscope.answers.trace_cells import PS, device_name
from hloscope.answers.trace_plot_shapes import Axis, area, brackets, legend, vertical_grid
from hloscope.pipeline.audit import plural
from hloscope.traces.steps import StepSource
from hloscope.traces.summary import DeviceSummary, HostSummary, Trace
from hloscope.traces.timeline_bins import Bins

__all__ = ["COLUMNS", "plot_trace"]

_WIDTH, _LEFT, _RIGHT = 960, 110, 70
_INNER = _WIDTH - _LEFT - _RIGHT
COLUMNS = 2 * _INNER
"""Columns that a window is read in: more than two of a pixel show nothing more."""

_MOST_ROWS = 64
_MOST_BYTES = 400_000  # of all rows, so that a picture stays one that a page can hold
_HEIGHTS = ((2, 72), (8, 40), (16, 26), (32, 18))  # of a row, by how many there are at most
_LOWEST = 12
_LABELLED = 26  # the height from which long gaps are labelled
_GAP = 64  # pixels that the label of one needs
_BRACKETS = 20  # the height of a lane of steps
_STYLE = (
    "text{font:12px sans-serif;fill:#333}"
    ".title{font-size:14px;font-weight:bold}"
    ".small{font-size:10px}.gap{font-size:10px;fill:#777}"
    ".grid{stroke:#ddd}.frame{fill:#fff;stroke:#999;stroke-width:.6}"
    ".step{fill:none;stroke:#333}"
    ".compute{fill:#4c78a8}.exposed{fill:url(#hatched)}.hidden{fill:#f0a875}"
    ".copies{fill:#f2cf3b}.control{fill:#a9a9a9}.idle{fill:#fff;stroke:#999;stroke-width:.6}"
)
# Colours that the colour-blind tell apart; communication is hatched for whoever prints it.
_PATTERN = (
    '<defs><pattern id="hatched" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="5" height="5" fill="#d55e00"/>'
    '<rect width="1.4" height="5" fill="#7a3300"/></pattern></defs>'
)
_PARTS = (
    ("compute", "compute", "compute"),
    ("exposed", "exposed communication", "exposed_communication"),
    ("copies", "exposed copies", "exposed_copies"),
    ("control", "control flow", "control"),
    ("idle", "idle", "idle"),
)
"""Class, words and attribute of each part, from the bottom of a row to its top."""


@dataclass(frozen=True)
class _Row:
    """A device as it is drawn, and where."""

    device: DeviceSummary
    bins: Bins
    top: float


class _Layout:
    """Where everything stands; what there is no room for is counted."""

    def __init__(self, trace: Trace) -> None:
        every = [device for device in trace.devices if device.bins is not None]
        self.shown = every[:_MOST_ROWS]
        self.left_out = every[_MOST_ROWS:]
        number = len(self.shown)
        self.height = next((size for most, size in _HEIGHTS if number <= most), _LOWEST)
        hides = any(device.parts.hidden_communication for device in self.shown)
        self.hidden = max(self.height // 6, 3) if hides else 0
        self.each_has_steps = number <= 2
        self.top = 84
        self.origins = {
            host: min(device.windows.chosen.begin for device in devices)
            for host, devices in groupby(self.shown, lambda device: device.host)
        }
        self.span = max(
            (d.windows.chosen.end - self.origins[d.host] for d in self.shown), default=1
        )

    def axis(self, host: str) -> Axis:
        return Axis(_LEFT, _INNER, self.origins[host], max(self.span, 1))


def plot_trace(trace: Trace) -> str:
    """Draw what each device did over its window.

    The picture depends on nothing but the trace, which was read with columns. However
    many events there were, each column shows what share of it went to what; columns
    are made longer until the picture is small.

    Returns:
        An SVG document.
    """
    layout = _Layout(trace)
    body, bottom, rows = _lanes(trace, layout)
    each = 1
    shapes = _shapes(rows, layout, each)
    while sum(map(len, shapes)) > _MOST_BYTES:
        each *= 2
        shapes = _shapes(rows, layout, each)
    notes = list(_notes(layout, rows, each))
    height = bottom + 44 + 16 * len(notes)
    grid = vertical_grid(Axis(_LEFT, _INNER, 0, max(layout.span, 1)), layout.top, bottom)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {_WIDTH} {height:.0f}">',
        f"<style>{_STYLE}</style>",
        _PATTERN,
        f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#fff"/>',
        f'<text class="title" x="16" y="24">{escape(_title(trace, layout))}</text>',
        *legend(_shares(layout), 16, 36, _WIDTH - 16),
        *grid,
        *shapes,
        *body,
        f'<text x="{_LEFT + _INNER / 2:.0f}" y="{bottom + 32:.0f}" text-anchor="middle">'
        f"ms from where the window begins</text>",
        *(
            f'<text class="small" x="16" y="{bottom + 50 + 16 * n:.0f}">{escape(note)}</text>'
            for n, note in enumerate(notes)
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _title(trace: Trace, layout: _Layout) -> str:
    windows = dict.fromkeys(device.windows.chosen.name for device in layout.shown)
    which = " and ".join("the whole window" if name == "all" else name for name in windows)
    name = units.shorten_middle(trace.name, 60)
    devices = plural(len(layout.shown) + len(layout.left_out), "device")
    if len(layout.origins) > 1:
        devices += f" of {len(layout.origins)} hosts"
    return f"{name}: {devices}, {which}, {units.seconds(layout.span * PS)}"


def _shares(layout: _Layout) -> Iterator[tuple[str, str]]:
    """Class and words of each part that there is, with its share of all windows."""
    whole = sum(device.parts.window.length for device in layout.shown)
    for kind, words, attribute in _PARTS:
        time = sum(getattr(device.parts, attribute) for device in layout.shown)
        if time or kind in ("compute", "idle"):
            yield kind, f"{words} {units.share(time / whole) if whole else ''}"
    hidden = sum(device.parts.hidden_communication for device in layout.shown)
    if hidden:
        yield "hidden", f"hidden communication {units.share(hidden / whole)}, behind compute"


def _lanes(trace: Trace, layout: _Layout) -> tuple[list[str], float, list[_Row]]:
    """Steps and names; where the last row ends; the rows."""
    lines: list[str] = []
    rows: list[_Row] = []
    y = float(layout.top)
    small = ' class="small"' if layout.height < 18 else ""
    for host in trace.hosts:
        devices = [device for device in layout.shown if device.host == host.host]
        if not devices:
            continue
        axis = layout.axis(host.host)
        y = _annotations(lines, host, axis, y, several=len(trace.hosts) > 1)
        for place, device in enumerate(devices):
            if device.bins is None:
                continue
            if device.steps.rows and (layout.each_has_steps or not place):
                steps = [(step.number, step.begin, step.end) for step in device.steps.rows]
                lines += brackets(axis, steps, y)
                lines.append(_label(f"steps of {device.name}", y + 16, ' class="small"'))
                y += _BRACKETS
            rows.append(_Row(device, device.bins, y))
            middle = y + layout.height / 2 + 4
            lines.append(_label(device_name(trace, device), middle, small))
            window = device.windows.chosen
            busy = device.parts.busy / window.length if window.length else 0.0
            lines.append(
                f'<text{small} x="{_LEFT + _INNER + 6}" y="{middle:.0f}">{busy:.1%}</text>'
            )
            if layout.height >= _LABELLED:
                lines += _gaps(device, axis, middle)
            y += layout.height + (layout.hidden + 1 if layout.hidden else 0)
            y += max(layout.height // 6, 3)
        y += 4
    lines.append(f'<text class="small" x="{_LEFT + _INNER + 6}" y="{layout.top - 4}">busy</text>')
    return lines, y, rows


def _gaps(device: DeviceSummary, axis: Axis, y: float) -> Iterator[str]:
    """How long nothing ran, where there is room to say so."""
    gaps = device.parts.gaps
    wide = (gaps.ends - gaps.begins) * (axis.width / axis.span) >= _GAP
    for begin, end in zip(gaps.begins[wide].tolist(), gaps.ends[wide].tolist(), strict=True):
        x = (axis.x(begin) + axis.x(end)) / 2
        long = units.seconds((end - begin) * PS)
        yield f'<text class="gap" x="{x:.1f}" y="{y:.0f}" text-anchor="middle">{long}</text>'


def _annotations(
    lines: list[str], host: HostSummary, axis: Axis, y: float, *, several: bool
) -> float:
    shapes = list(brackets(axis, host.annotations, y))
    if not shapes:  # none, or all before the window
        return y
    lines += shapes
    lines.append(_label(host.host if several else "host", y + 16, ' class="small"'))
    return y + _BRACKETS


def _label(text: str, y: float, css: str) -> str:
    shown = escape(units.shorten_middle(text, 16))
    return f'<text{css} x="{_LEFT - 8}" y="{y:.0f}" text-anchor="end">{shown}</text>'


def _shapes(rows: Sequence[_Row], layout: _Layout, each: int) -> list[str]:
    """What is drawn of the rows with so many columns put into one."""
    lines: list[str] = []
    for number, row in enumerate(rows):
        lines += _row(number, row, layout, each)
    return lines


def _row(number: int, row: _Row, layout: _Layout, each: int) -> Iterator[str]:
    axis = layout.axis(row.device.host)
    bins = row.bins.merged(each)
    left, right = axis.x(bins.window.begin), axis.x(bins.window.end)
    width = max(right - left, 0.5)
    frame = f'x="{left:.2f}" y="{row.top:g}" width="{width:.2f}" height="{layout.height}"'
    name = escape(f"{row.device.host} {row.device.name}")
    yield f'<rect class="frame" {frame}><title>{name}</title></rect>'
    total = sum(getattr(bins, attribute) for *_, attribute in _PARTS[:-1])
    # From the tallest to the lowest: each is painted over what is stacked on it. Columns
    # that have none of it are left out, or its colour would shine through at their edges.
    for kind, _, attribute in reversed(_PARTS[:-1]):
        mine = getattr(bins, attribute)
        if mine.any():
            stacked = np.where(mine > 0, total, 0)
            shape = area(bins, stacked, left, row.top + layout.height, width, layout.height)
            if kind == "exposed":  # a pattern must not be stretched with the columns
                yield f'<clipPath id="c{number}"><path {shape}/></clipPath>'
                yield f'<rect class="exposed" clip-path="url(#c{number})" {frame}/>'
            else:
                yield f'<path class="{kind}" {shape}/>'
        total = total - mine
    if layout.hidden:
        top = row.top + layout.height + 1
        yield (
            f'<rect class="frame" x="{left:.2f}" y="{top:g}" width="{width:.2f}" '
            f'height="{layout.hidden}"/>'
        )
        if bins.hidden_communication.any():
            bottom = top + layout.hidden
            shape = area(bins, bins.hidden_communication, left, bottom, width, layout.hidden)
            yield f'<path class="hidden" {shape}/>'


def _notes(layout: _Layout, rows: Sequence[_Row], each: int) -> Iterator[str]:
    lengths = [row.bins.window.length / max(len(row.bins.merged(each)), 1) for row in rows]
    if lengths:
        shortest, longest = units.seconds(min(lengths) * PS), units.seconds(max(lengths) * PS)
        long = shortest if shortest == longest else f"{shortest} to {longest}"
        yield f"Each column is {long}; its colours are the shares of it. White is idle."
    if layout.hidden:
        yield "The thin lane below a device: communication while it also computed."
    sources = dict.fromkeys(
        device.steps.source.value
        for device in layout.shown
        if device.steps.source is not StepSource.NONE
    )
    if sources:
        yield f"Steps: {' and '.join(sources)}."
    if len(layout.origins) > 1:
        yield "Each host's rows begin where its own window does: their clocks are not compared."
    if layout.left_out:
        whole = sum(device.parts.window.length for device in layout.left_out)
        busy = sum(device.parts.busy for device in layout.left_out)
        share = units.share(busy / whole) if whole else "0%"
        yield f"{plural(len(layout.left_out), 'more device')} not drawn: busy {share} together."
