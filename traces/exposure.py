"""What a window of a device's time was spent on, in parts that add up to it exactly.

Devices compute, exchange and copy side by side. Time in which anything is computed is
compute; communication is exposed while nothing is computed, and a copy while neither
is. What is left of the window the device held an operation open that only contains
others, or it was idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hloscope.traces.categories import Categories
from hloscope.traces.exchanging import Exchanging, Key, exchanging_of
from hloscope.traces.intervals import Intervals
from hloscope.traces.kernel_names import Category
from hloscope.traces.timeline import Device
from hloscope.traces.windows import Window

__all__ = ["CollectiveTime", "Exchange", "Parts", "Split", "parts_of", "split_of"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The communication of one category; times are in picoseconds.

    Attributes:
        category: Which.
        number: Runs that begin in the window.
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


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """One exchange as the program has it, in a window; times are in picoseconds.

    Attributes:
        key: Which.
        number: Runs that begin in the window; of one that launches several kernels, these.
        time: Time in which it ran or was in flight.
        exposed: The part of it in which nothing was computed. Of two exchanges that run
            side by side both have it.
    """

    key: Key
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
        gaps: Where nothing ran; of a summary the longest ones.
        collectives: By the program's instruction, the one with most exposed time first.
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
    collectives: tuple[CollectiveTime, ...] = ()

    @property
    def busy(self) -> int:
        """Time in which anything ran at all, or was in flight."""
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
        gaps: Where nothing ran; of a summary the longest ones.
    """

    compute: Intervals
    communication: Intervals
    exposed: Intervals
    exposed_copies: Intervals
    open: Intervals
    gaps: Intervals


def split_of(
    device: Device,
    categories: Categories,
    window: Window,
    flying: Categories | None = None,
    exchanging: Exchanging | None = None,
) -> Split:
    """Split a window of a device's time.

    What a TPU has in flight beside its operations counts as communication where it is
    a collective, and as a copy where it is a transfer: only while nothing is computed,
    and once, whatever of its start and its end stands among the operations.

    Args:
        device: The device.
        categories: What each event of its work did.
        window: What counts.
        flying: What each of its transfers in flight does; they are left out without.
        exchanging: Its exchanges, where they are known already.
    """
    work = device.work
    communicating, copying = categories.communicating, categories.copying
    containing = categories.containing
    exchanging = exchanging or exchanging_of(device, categories, flying, None)
    span = window.begin, window.end
    compute = work.intervals(~(communicating | copying | containing)).within(*span)
    communication = exchanging.all.within(*span)
    copies = work.intervals(copying)
    if flying is not None:
        # What computes in flight does so elsewhere, on a SparseCore or the host.
        moved = flying.copying | flying.of(Category.LAYOUT) | flying.of(Category.OTHER)
        copies = copies | device.flying.intervals(moved)
    copies = copies.within(*span)
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
    )


def parts_of(
    device: Device,
    categories: Categories,
    window: Window,
    flying: Categories | None = None,
    exchanging: Exchanging | None = None,
) -> Parts:
    """How long a window of a device's time was spent on what; see :func:`split_of`."""
    exchanging = exchanging or exchanging_of(device, categories, flying, None)
    split = split_of(device, categories, window, flying, exchanging)
    exposed = split.exposed.total
    collectives, exchanges = _exchanged(exchanging, split.compute, window)
    return Parts(
        window=window,
        compute=split.compute.total,
        exposed_communication=exposed,
        hidden_communication=split.communication.total - exposed,
        exposed_copies=split.exposed_copies.total,
        control=split.open.total,
        idle=split.gaps.total,
        exchanges=exchanges,
        gaps=split.gaps,
        collectives=collectives,
    )


def _exchanged(
    exchanging: Exchanging, compute: Intervals, window: Window
) -> tuple[tuple[CollectiveTime, ...], tuple[Exchange, ...]]:
    """Every exchange, and each kind of them, the ones with most exposed time first."""
    kinds = exchanging.by_category
    sets = [each.within(window.begin, window.end) for each in (*exchanging.spans, *kinds.values())]
    exposed = [
        each.total - hidden for each, hidden in zip(sets, _hidden(sets, compute), strict=True)
    ]
    collectives = []
    numbers = dict.fromkeys(kinds, 0)
    for place, key in enumerate(exchanging.keys):
        begins, _ = exchanging.runs(place)
        number = int(np.count_nonzero((begins >= window.begin) & (begins < window.end)))
        numbers[key.category] += number
        if len(sets[place]):
            collectives.append(CollectiveTime(key, number, sets[place].total, exposed[place]))
    first = len(exchanging.keys)
    exchanges = [
        Exchange(category, numbers[category], sets[place].total, exposed[place])
        for place, category in enumerate(kinds, first)
        if len(sets[place])
    ]
    return (
        tuple(sorted(collectives, key=lambda row: (-row.exposed, -row.time))),
        tuple(sorted(exchanges, key=lambda row: (-row.exposed, -row.time))),
    )


def _hidden(sets: Sequence[Intervals], compute: Intervals) -> list[int]:
    """Time of each set in which something was computed: one pass over compute for all."""
    if not sets:
        return []
    begins = np.concatenate([each.begins for each in sets])
    ends = np.concatenate([each.ends for each in sets])
    sums = np.append(0, np.cumsum(compute.covered(begins, ends)))
    edges = np.append(0, np.cumsum([len(each) for each in sets]))
    return [int(found) for found in np.diff(sums[edges])]
