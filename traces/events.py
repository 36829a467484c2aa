"""The events of one line of a profile as columns; their stats are decoded when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.wire import (
    Bytes,
    Positions,
    WireError,
    Words,
    fields,
    varints_at,
    words_of,
)

__all__ = ["Events", "StatColumn", "StatKind", "decode_events"]

_CHUNK = 1 << 16  # events whose columns stay in the processor's cache
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

    def numbers(self) -> NDArray[np.int64]:
        """Whole numbers, 0 where there is none; unsigned ones above 2^63 come out negative."""
        whole = (self.kinds == StatKind.INT) | (self.kinds == StatKind.UINT)
        return np.where(whole, self.values, _U(0)).view(np.int64)


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one line, in the order of the file.

    Attributes:
        metadata: The id of each event's metadata, which has its name.
        offset_ps: Picoseconds from the line's timestamp to the event's start.
        duration_ps: How long it took.
        aggregated: Events left out, as they stand for several without a place in time.
        buffer: Of the whole file.
        stats_at: Offset of each event's first stat.
        ends: Offset of each event's end.
    """

    metadata: NDArray[np.int64]
    offset_ps: NDArray[np.int64]
    duration_ps: NDArray[np.int64]
    aggregated: int
    buffer: Bytes
    stats_at: Positions
    ends: Positions

    def __len__(self) -> int:
        return len(self.metadata)

    def only(self, kept: Positions) -> Events:
        """Some of them, by their places."""
        return Events(
            self.metadata[kept],
            self.offset_ps[kept],
            self.duration_ps[kept],
            self.aggregated,
            self.buffer,
            self.stats_at[kept],
            self.ends[kept],
        )

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
                self._fill(columns, np.asarray(ids, np.int64), slice(first, first + _CHUNK))
        return columns

    def _fill(
        self, columns: Mapping[int, StatColumn], ids: NDArray[np.int64], chunk: slice
    ) -> None:
        words, buffer = words_of(self.buffer), self.buffer
        at, ends = self.stats_at[chunk].copy(), self.ends[chunk]
        first = chunk.start or 0
        open_ = np.flatnonzero(at < ends)
        while len(open_):
            here = at[open_]
            head = words[here]
            stat = (head & _U(0xFF)) == _U(_STAT)
            if not stat.all():
                at[open_[~stat]] = _skip(buffer, here[~stat], ends[open_[~stat]])
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
            self._values(columns, ids, open_ + first, which, value_at, after)
            open_ = open_[after < ends[open_]]

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


def decode_events(buffer: Bytes, begins: Positions, ends: Positions) -> Events:
    """Decode what every event has: its metadata's id, its offset and its duration.

    Args:
        buffer: The file, and at least eight bytes behind it.
        begins: Where each event's contents begin.
        ends: Where they end.

    Raises:
        WireError: An event is no message.
    """
    number = len(begins)
    metadata, offset, duration = (np.zeros(number, np.int64) for _ in range(3))
    placed = np.zeros(number, np.bool_)
    stats_at = ends.copy()
    words = words_of(buffer)
    for first in range(0, number, _CHUNK):
        chunk = slice(first, first + _CHUNK)
        at, end = begins[chunk].copy(), ends[chunk]
        open_ = np.flatnonzero(at < end)
        while len(open_):
            here = at[open_]
            tags = buffer[here]
            stat = tags == _STAT
            if stat.any():
                # The rest is decoded when it is asked for; but of an event that is written
                # in an unusual order the numbers are still to come.
                found = open_[stat]
                stats_at[chunk][found] = np.minimum(stats_at[chunk][found], here[stat])
                late = found[metadata[chunk][found] == 0]
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
                if mine.all():
                    column[chunk][open_] = value.view(np.int64)
                elif mine.any():
                    column[chunk][open_[mine]] = value[mine].view(np.int64)
                if tag == _OFFSET:
                    placed[chunk][open_[mine]] = True
            other = (tags & 7 != 0) | (tags >= 0x80)
            if other.any():
                behind[other] = _skip(buffer, here[other], end[open_[other]])
                wrong[other] = False
            if wrong.any():
                raise WireError("a number that reaches beyond its event", int(here[wrong][0]))
            at[open_] = behind
            open_ = open_[behind < end[open_]]
    several = np.zeros(number, np.bool_)
    rest = np.flatnonzero(~placed)
    several[rest] = _stand_for_several(buffer, stats_at[rest], ends[rest])
    if several.any():
        kept = ~several
        metadata, offset, duration = metadata[kept], offset[kept], duration[kept]
        stats_at, ends = stats_at[kept], ends[kept]
    aggregated = int(np.count_nonzero(several))
    return Events(metadata, offset, duration, aggregated, buffer, stats_at, ends)


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
