"""The events of one line of a profile as columns; their stats are decoded when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.layouts import decode_heads, layout_of, rows_at
from hloscope.traces.wire import (
    Bytes,
    Positions,
    WireError,
    Words,
    fields,
    varints_at,
    words_of,
)

__all__ = ["EventStats", "Events", "StatColumn", "StatKind", "decode_events"]

_CHUNK = 1 << 15  # events whose columns stay in the processor's cache
_LAYOUTS = 12  # that are tried for the events of one chunk
_FEWEST = 16  # of so many events a layout is worth trying
_U = np.uint64

# XEvent: metadata_id 1, offset_ps 2, duration_ps 3, stats 4, num_occurrences 5.
_METADATA, _OFFSET, _DURATION, _STAT, _OCCURRENCES = 0x08, 0x10, 0x18, 0x22, 0x28

# XStat: metadata_id 1, then one value: double 2, uint64 3, int64 4, str 5, bytes 6, ref 7.
_NUMBERS, _TEXTS, _DOUBLE = (0x18, 0x20, 0x38), (0x2A, 0x32), 0x11


class StatKind(IntEnum):
    """How a stat's value is written; ``ABSENT`` where an event has none."""

    ABSENT = 0
    DOUBLE = 2
    UINT = 3
    INT = 4
    STRING = 5
    BYTES = 6
    REFERENCE = 7


@dataclass(frozen=True, slots=True)
class StatColumn:
    """One stat of every event of a line.

    Attributes:
        kinds: A ``StatKind`` for each event.
        values: Its bits: of strings and bytes the offset of their length in the buffer.
    """

    kinds: NDArray[np.uint8]
    values: NDArray[np.uint64]

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which events have it."""
        return np.asarray(self.kinds != StatKind.ABSENT)

    def numbers(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Whole numbers, 0 where there is none, and where there is one.

        Unsigned ones above 2^63 come out negative.
        """
        whole = (self.kinds == StatKind.INT) | (self.kinds == StatKind.UINT)
        if whole.all():
            return self.values.view(np.int64), whole
        return np.where(whole, self.values, _U(0)).view(np.int64), whole


@dataclass(frozen=True, slots=True)
class EventStats:
    """Where the stats of a line's events stand.

    Attributes:
        buffer: Of the whole file.
        stats_at: Offset of each event's first stat.
        ends: Offset of each event's end.
    """

    buffer: Bytes
    stats_at: Positions
    ends: Positions

    def __len__(self) -> int:
        return len(self.ends)

    def only(self, kept: Positions) -> EventStats:
        """Those of some events, by their places."""
        return EventStats(self.buffer, self.stats_at[kept], self.ends[kept])

    def stats(self, wanted: Iterable[int]) -> Mapping[int, StatColumn]:
        """Columns of some stats, by the ids of their metadata; all in one pass.

        Where an event has one twice, the last counts.

        Raises:
            WireError: A stat is no message.
        """
        ids = sorted(set(wanted))
        columns = {
            each: StatColumn(np.zeros(len(self), np.uint8), np.zeros(len(self), np.uint64))
            for each in ids
        }
        if ids and len(self):
            for first in range(0, len(self), _CHUNK):
                chunk = slice(first, first + _CHUNK)
                having = np.flatnonzero(self.stats_at[chunk] < self.ends[chunk]) + first
                rest = self._fill_alike(columns, having)
                self._fill(columns, np.asarray(ids, np.int64), rest)
        return columns

    def _fill_alike(self, columns: Mapping[int, StatColumn], events: Positions) -> Positions:
        """Decode the stats of events that are laid out alike, and say which are left."""
        wanted = frozenset(columns)
        starts = self.stats_at[events]
        sizes = self.ends[events] - starts
        left: list[Positions] = []
        for _ in range(_LAYOUTS):
            if len(events) < _FEWEST:
                break
            begin, size = int(starts[0]), int(sizes[0])
            layout = layout_of(self.buffer, begin, begin + size, wanted)
            alike = sizes == size
            if layout is None or int(starts.max()) + size + 8 > len(self.buffer):
                left.append(events[alike])
            else:
                mine = events[alike]
                table = rows_at(self.buffer, starts[alike], size)
                fits = layout.fit(table)
                if not fits.all():
                    mine = mine[fits]
                    table = [column[fits] for column in table]
                    alike[alike] = fits
                for value in layout.values:
                    column = columns[value.stat]
                    column.kinds[mine] = value.kind
                    column.values[mine] = (
                        layout.decode(table, value)
                        if value.width
                        else (self.stats_at[mine] + value.at).view(np.uint64)
                    )
            events, starts, sizes = events[~alike], starts[~alike], sizes[~alike]
        return np.concatenate((*left, events))

    def _fill(
        self, columns: Mapping[int, StatColumn], ids: NDArray[np.int64], events: Positions
    ) -> None:
        """Decode the stats of any events, one of each after the other."""
        words, buffer = words_of(self.buffer), self.buffer
        at, ends = self.stats_at[events], self.ends[events]
        open_ = np.arange(len(events))
        while len(open_):
            here = at[open_]
            head = words[here]
            stat = (head & _U(0xFF)) == _U(_STAT)
            later = open_[~stat]
            if len(later):
                # Fields that are no stats; some may stand behind them.
                at[later] = _skip(buffer, here[~stat], ends[later])
                later = later[at[later] < ends[later]]
                open_, here, head = open_[stat], here[stat], head[stat]
            length = (head >> _U(8)) & _U(0xFF)
            begin = here + 2
            long = length >= _U(0x80)
            if long.any():
                length[long], begin[long] = varints_at(words, here[long] + 1, buffer)
            after = begin + np.minimum(length, _U(1 << 40)).astype(np.int64)
            wrong = after > ends[open_]
            if wrong.any():
                raise WireError("a stat that reaches beyond its event", int(here[wrong][0]))
            at[open_] = after
            # The usual stat: a short one, whose id stands first and has seven bits.
            usual = ~long & ((head >> _U(16)) & _U(0x80FF) == _U(_METADATA)) & (begin + 2 < after)
            which = ((head >> _U(24)) & _U(0xFF)).view(np.int64)
            value_at = begin + 2
            if not usual.all():
                rest = np.flatnonzero(~usual)
                which[rest], value_at[rest] = self._heads(begin[rest], after[rest])
            self._values(columns, ids, events[open_], which, value_at, after)
            open_ = np.concatenate((open_[after < ends[open_]], later))

    def _heads(self, begin: Positions, after: Positions) -> tuple[NDArray[np.int64], Positions]:
        """The ids of any stats, and where the tags of their values stand."""
        words, buffer = words_of(self.buffer), self.buffer
        which, at = np.zeros(len(begin), np.int64), after.copy()
        first = (begin < after) & (buffer[begin] == _METADATA)
        found, behind = varints_at(words, begin[first] + 1, buffer)
        which[first], at[first] = found.view(np.int64), np.minimum(behind, after[first])
        for index in np.flatnonzero(~first).tolist():
            which[index], at[index] = _read_slowly(buffer, int(begin[index]), int(after[index]))
        return which, at

    def _values(
        self,
        columns: Mapping[int, StatColumn],
        ids: NDArray[np.int64],
        events: Positions,
        which: NDArray[np.int64],
        at: Positions,
        after: Positions,
    ) -> None:
        """Put the values of one stat of each event where they belong."""
        words, buffer = words_of(self.buffer), self.buffer
        for each in ids.tolist():
            # One without a value has its place at its end.
            mine = (which == each) & (at < after)
            if not mine.any():
                continue
            column = columns[each]
            if not mine.all():
                rows, here, end = events[mine], at[mine], after[mine]
            else:
                rows, here, end = events, at, after
            tags = buffer[here]
            for tag in np.unique(tags).tolist():
                same = tags == tag
                some, place, stop = (
                    (rows, here, end) if same.all() else (rows[same], here[same], end[same])
                )
                if tag in _NUMBERS:
                    column.values[some], behind = varints_at(words, place + 1, buffer)
                elif tag == _DOUBLE:
                    column.values[some], behind = words[place + 1], place + 9
                elif tag in _TEXTS:
                    column.values[some], behind = (place + 1).view(np.uint64), place + 1
                else:
                    continue
                if (behind > stop).any():
                    raise WireError("a value that reaches beyond its stat", int(place[0]))
                column.kinds[some] = tag >> 3


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one line, in the order of the file.

    Attributes:
        metadata: The id of each event's metadata, which has its name.
        offset_ps: Picoseconds from the line's timestamp to the event's start.
        duration_ps: How long it took.
        aggregated: Events left out, as they stand for several without a place in time.
        places: Where their stats stand.
    """

    metadata: NDArray[np.int64]
    offset_ps: NDArray[np.int64]
    duration_ps: NDArray[np.int64]
    aggregated: int
    places: EventStats

    def __len__(self) -> int:
        return len(self.metadata)

    @property
    def buffer(self) -> Bytes:
        """Of the whole file."""
        return self.places.buffer

    def only(self, kept: Positions) -> Events:
        """Some of them, by their places."""
        return Events(
            self.metadata[kept],
            self.offset_ps[kept],
            self.duration_ps[kept],
            self.aggregated,
            self.places.only(kept),
        )

    def stats(self, wanted: Iterable[int]) -> Mapping[int, StatColumn]:
        """Columns of some stats; see ``EventStats.stats``."""
        return self.places.stats(wanted)


def _read_slowly(buffer: Bytes, begin: int, end: int) -> tuple[int, int]:
    """The id of any stat, and where its value's tag stands: at its end where it has none."""
    which, at, start = 0, end, begin
    for field in fields(buffer.data, begin, end):
        if field.number == 1:
            which = field.value - (1 << 64) if field.value >> 63 else field.value
        elif 2 <= field.number <= 7:
            at = start
        start = field.end
    return which, at


def _skip(buffer: Bytes, at: Positions, ends: Positions) -> Positions:
    """Where unknown fields end, which are few."""
    view = buffer.data
    return np.asarray(
        [next(fields(view, a, b)).end for a, b in zip(at.tolist(), ends.tolist(), strict=True)],
        np.int64,
    )


def decode_events(
    buffer: Bytes,
    begins: Positions,
    ends: Positions,
    into: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Events:
    """Decode what every event has: its metadata's id, its offset and its duration.

    Args:
        buffer: The file, and at least 24 bytes behind it.
        begins: Where each event's contents begin.
        ends: Where they end.
        into: Where offsets and durations are written to; new arrays where left out.

    Raises:
        WireError: An event is no message.
    """
    number = len(begins)
    metadata = np.empty(number, np.int64)
    offset, duration = into or (np.empty(number, np.int64), np.empty(number, np.int64))
    columns = metadata, offset, duration
    placed = np.ones(number, np.bool_)
    stats_at = np.empty(number, np.int64)
    for first in range(0, number, _CHUNK):
        chunk = slice(first, first + _CHUNK)
        usual, values, behind = decode_heads(buffer, begins[chunk], ends[chunk])
        for column, found in zip(columns, values, strict=True):
            column[chunk] = found
        stats_at[chunk] = behind
        rest = np.flatnonzero(~usual) + first
        if len(rest):
            _decode(buffer, rest, (begins, ends), columns, (placed, stats_at))
    several = np.zeros(number, np.bool_)
    rest = np.flatnonzero(~placed)
    several[rest] = _stand_for_several(buffer, stats_at[rest], ends[rest])
    if several.any():
        kept = ~several
        metadata, offset, duration = metadata[kept], offset[kept], duration[kept]
        stats_at, ends = stats_at[kept], ends[kept]
    aggregated = int(np.count_nonzero(several))
    return Events(metadata, offset, duration, aggregated, EventStats(buffer, stats_at, ends))


def _decode(
    buffer: Bytes,
    events: Positions,
    places: tuple[Positions, Positions],
    columns: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    found: tuple[NDArray[np.bool_], Positions],
) -> None:
    """Decode events that are written in any way, a field of each after the other.

    Args:
        buffer: The file.
        events: Which of all events.
        places: Where the contents of all events begin and end.
        columns: Filled with their numbers.
        found: Filled with whether they have an offset, and where their stats begin.
    """
    at, end = places[0][events], places[1][events]
    metadata, offset, duration = (np.zeros(len(events), np.int64) for _ in range(3))
    placed = np.zeros(len(events), np.bool_)
    stats_at = end.copy()
    words = words_of(buffer)
    open_ = np.flatnonzero(at < end)
    while len(open_):
        here = at[open_]
        tags = buffer[here]
        stat = tags == _STAT
        if stat.any():
            # The rest is decoded when it is asked for; but of an event that is written
            # in an unusual order the numbers are still to come.
            begun = open_[stat]
            stats_at[begun] = np.minimum(stats_at[begun], here[stat])
            late = begun[metadata[begun] == 0]
            at[late] = _behind_stats(words, at[late], end[late], buffer)
            open_, here, tags = open_[~stat], here[~stat], tags[~stat]
            if len(late):
                late = late[at[late] < end[late]]
                open_ = np.concatenate((open_, late))
                here, tags = at[open_], buffer[at[open_]]
                if (tags == _STAT).any():
                    continue
            if not len(open_):
                break
        value, behind = varints_at(words, here + 1, buffer)
        wrong = behind > end[open_]
        for tag, column in ((_METADATA, metadata), (_OFFSET, offset), (_DURATION, duration)):
            mine = tags == tag
            column[open_[mine]] = value[mine].view(np.int64)
            if tag == _OFFSET:
                placed[open_[mine]] = True
        other = (tags & 7 != 0) | (tags >= 0x80)
        if other.any():
            behind[other] = _skip(buffer, here[other], end[open_[other]])
            wrong[other] = False
        if wrong.any():
            raise WireError("a number that reaches beyond its event", int(here[wrong][0]))
        at[open_] = behind
        open_ = open_[behind < end[open_]]
    for all_of_them, mine in zip(columns, (metadata, offset, duration), strict=True):
        all_of_them[events] = mine
    found[0][events], found[1][events] = placed, stats_at


def _behind_stats(words: Words, at: Positions, ends: Positions, buffer: Bytes) -> Positions:
    """Where stats end, by the lengths behind their tags."""
    length, begin = varints_at(words, at + 1, buffer)
    # Of a length that is none, the end: it is refused where the stats are decoded.
    return np.minimum(begin + np.minimum(length, _U(1 << 40)).astype(np.int64), ends)


def _stand_for_several(buffer: Bytes, at: Positions, ends: Positions) -> NDArray[np.bool_]:
    """Which events without an offset have a number of occurrences in its place."""
    found = np.zeros(len(at), np.bool_)
    at, words = at.copy(), words_of(buffer)
    open_ = np.flatnonzero(at < ends)
    while len(open_):
        here = at[open_]
        found[open_[buffer[here] == _OCCURRENCES]] = True
        stat = buffer[here] == _STAT
        at[open_[~stat]] = _skip(buffer, here[~stat], ends[open_[~stat]])
        at[open_[stat]] = _behind_stats(words, here[stat], ends[open_[stat]], buffer)
        open_ = np.flatnonzero(at < ends)
    return found
