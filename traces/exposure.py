"""What a window of a device's time was spent on, in parts that add up to it exactly.

Devices compute, exchange and copy side by side. Time in which anything is computed is
compute; communication is exposed while nothing is computed, and a copy while neither
is. What is left of the window the device held an operation open that only contains
others, or it was idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hloscope.traces.categories import Categories
from hloscope.traces.intervals import EMPTY, Intervals
from hloscope.traces.kernel_names import Category
from hloscope.traces.timeline import Device
from hloscope.traces.windows import Window

__all__ = ["Exchange", "Parts", "Split", "parts_of", "split_of"]


_Found = tuple[Intervals, np.ndarray]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The communication of one category.

    Attributes:
        category: Which.
        number: Events in the window.
        time: Time in which any of them ran or was in flight.
        exposed: The part of it in which nothing was computed.
    """

    category: Category
    number: int
    time: int
    exposed: int

    @property
    def hidden(self) -> int:
        """The part of it behind which something was computed."""
        return self.time - self.exposed


@dataclass(frozen=True)
class Parts:
    """A window of one device's time, split without rest.

    Attributes:
        window: The window.
        compute: Time in which anything was computed.
        exposed_communication: Time in which devices exchanged and nothing was computed.
        hidden_communication: Time in which both happened; a part of ``compute``.
        exposed_copies: Time in which memory was only copied or cleared.
        control: Time in which only loops, calls or branches were open.
        idle: Time in which nothing ran.
        exchanges: By category, the one with most exposed time first.
        gaps: Where nothing ran.
    """

    window: Window
    compute: int
    exposed_communication: int
    hidden_communication: int
    exposed_copies: int
    control: int
    idle: int
    exchanges: tuple[Exchange, ...]
    gaps: Intervals

    @property
    def busy(self) -> int:
        """Time in which anything ran at all."""
        return self.window.length - self.idle


@dataclass(frozen=True, eq=False)
class Split:
    """When a window was spent on what; ``communication`` overlaps with ``compute`` alone.

    Attributes:
        compute: Where anything was computed.
        communication: Where devices exchanged.
        exposed: The part of it in which nothing was computed.
        exposed_copies: Where memory was only copied or cleared.
        open: Where only loops, calls or branches were open.
        gaps: Where nothing ran.
        by_category: The communication of each kind, and when its events began.
    """

    compute: Intervals
    communication: Intervals
    exposed: Intervals
    exposed_copies: Intervals
    open: Intervals
    gaps: Intervals
    by_category: Mapping[Category, _Found]


def split_of(device: Device, categories: Categories, window: Window) -> Split:
    """Split a window of a device's time.

    What a TPU has in flight beside its operations counts as communication where it is
    a collective, and as a copy where it is a transfer.
    """
    work = device.work
    communicating, copying = categories.communicating, categories.copying
    containing = categories.containing
    span = window.begin, window.end
    compute = work.intervals(~(communicating | copying | containing)).within(*span)
    by_category = _communication(device, categories)
    communication = EMPTY
    for intervals, _ in by_category.values():
        communication = communication | intervals
    communication = communication.within(*span)
    copies = work.intervals(copying).within(*span)
    control = work.intervals(containing).within(*span)
    moving = compute | communication
    running = moving | copies
    return Split(
        compute=compute,
        communication=communication,
        exposed=communication - compute,
        exposed_copies=copies - moving,
        open=control - running,
        gaps=(running | control).gaps(*span),
        by_category=by_category,
    )


def parts_of(device: Device, categories: Categories, window: Window) -> Parts:
    """How long a window of a device's time was spent on what; see :func:`split_of`."""
    split = split_of(device, categories, window)
    exposed = split.exposed.total
    return Parts(
        window=window,
        compute=split.compute.total,
        exposed_communication=exposed,
        hidden_communication=split.communication.total - exposed,
        exposed_copies=split.exposed_copies.total,
        control=split.open.total,
        idle=split.gaps.total,
        exchanges=_exchanges(split.by_category, split.compute, window),
        gaps=split.gaps,
    )


def _communication(device: Device, categories: Categories) -> Mapping[Category, _Found]:
    """When each kind of communication ran, and when its events began."""
    found: dict[Category, _Found] = {}
    for category in categories.kinds:
        if category.is_communication:
            mine = categories.of(category)
            found[category] = device.work.intervals(mine), device.work.begins[mine]
    return found


def _exchanges(
    by_category: Mapping[Category, _Found], compute: Intervals, window: Window
) -> tuple[Exchange, ...]:
    rows = []
    for category, (intervals, begins) in by_category.items():
        inside = intervals.within(window.begin, window.end)
        number = int(np.count_nonzero((begins >= window.begin) & (begins < window.end)))
        if len(inside):
            rows.append(Exchange(category, number, inside.total, (inside - compute).total))
    return tuple(sorted(rows, key=lambda row: (-row.exposed, -row.time)))
