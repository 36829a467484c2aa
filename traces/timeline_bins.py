"""What a window was spent on over time: its parts in columns of equal length, exactly.

However many events there were, a picture has only so many columns. What lies within one
is added up, so that nothing is lost between two of them and nothing is drawn longer than
it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.categories import Categories
from hloscope.traces.exchanging import Exchanging
from hloscope.traces.exposure import split_of
from hloscope.traces.timeline import Device
from hloscope.traces.windows import Window

__all__ = ["Bins", "bins_of", "edges_of"]

Times = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Bins:
    """A window of one device in columns; picoseconds of each column by what they went to.

    All but ``hidden_communication`` add up to the length of the column, and over the
    columns to what :class:`~hloscope.traces.exposure.Parts` has.

    Attributes:
        window: The window.
        edges: Where the columns begin, and where the last one ends.
        compute: Time in which anything was computed.
        exposed_communication: Time in which devices exchanged and nothing was computed.
        hidden_communication: Time in which both happened; a part of ``compute``.
        exposed_copies: Time in which memory was only copied or cleared.
        control: Time in which only loops, calls or branches were open.
        idle: Time in which nothing ran.
    """

    window: Window
    edges: Times
    compute: Times
    exposed_communication: Times
    hidden_communication: Times
    exposed_copies: Times
    control: Times
    idle: Times

    def __len__(self) -> int:
        return len(self.compute)

    def merged(self, each: int) -> Bins:
        """The same with ``each`` columns put into one; the last one may hold fewer."""
        starts = np.arange(0, len(self), each)

        def of(column: Times) -> Times:
            return np.add.reduceat(column, starts) if len(column) else column

        return Bins(
            self.window,
            np.append(self.edges[starts], self.edges[-1]),
            of(self.compute),
            of(self.exposed_communication),
            of(self.hidden_communication),
            of(self.exposed_copies),
            of(self.control),
            of(self.idle),
        )


def edges_of(window: Window, columns: int) -> Times:
    """Where columns of a window begin, and where the last one ends, to the picosecond.

    There are fewer columns than asked for where the window has fewer picoseconds.
    """
    number = max(min(columns, window.length), 1)
    whole, rest = divmod(window.length, number)
    places = np.arange(number + 1, dtype=np.int64)
    return window.begin + whole * places + rest * places // number


def bins_of(
    device: Device,
    categories: Categories,
    window: Window,
    columns: int,
    flying: Categories | None = None,
    exchanging: Exchanging | None = None,
) -> Bins:
    """Split a window of a device's time in each of its columns.

    Args:
        device: The device.
        categories: What each of its events did.
        window: What is looked at.
        columns: How many there are at most.
        flying: As for ``split_of``.
        exchanging: As for ``split_of``.
    """
    split = split_of(device, categories, window, flying, exchanging)
    edges = edges_of(window, columns)
    begins, ends = edges[:-1], edges[1:]
    exposed = split.exposed.covered(begins, ends)
    return Bins(
        window=window,
        edges=edges,
        compute=split.compute.covered(begins, ends),
        exposed_communication=exposed,
        hidden_communication=split.communication.covered(begins, ends) - exposed,
        exposed_copies=split.exposed_copies.covered(begins, ends),
        control=split.open.covered(begins, ends),
        idle=split.gaps.covered(begins, ends),
    )
