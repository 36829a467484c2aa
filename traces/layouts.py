"""Events that are laid out alike, decoded side by side.

Of the millions of events of a line nearly all have the same stats in the same order, and
numbers of the same few widths. Fetching bytes from all over a file is what takes time:
here each event's are fetched once, as a row, and the rows' columns are then compared and
decoded in the processor's cache. What is laid out otherwise is left to ``events``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    Bytes,
    Positions,
    WireError,
    packed_groups,
    read_varint,
)

__all__ = ["Layout", "Value", "decode_heads", "layout_of", "rows_at"]

_U = np.uint64
_HIGH_BITS = _U(0x8080_8080_8080_8080)
_WIDEST = 512  # bytes of the stats of one event
_HEAD = 24  # bytes that hold an event's first three fields

Columns = list[NDArray[np.uint64]]
"""Bytes 0 to 7 of every event, bytes 8 to 15, and so on."""


class Value(NamedTuple):
    """Where a stat's value stands in every event of a layout.

    Attributes:
        stat: The id of the stat's name.
        kind: The value's field.
        at: Bytes from the first stat to the value; of a text to its length.
        width: Bytes of a number; 0 of a text, which is not decoded.
    """

    stat: int
    kind: int
    at: int
    width: int


class Layout(NamedTuple):
    """How the stats of an event are laid out.

    Attributes:
        size: Bytes of all of them.
        masks: What of each eight bytes all events of the layout share.
        bits: What stands there.
        values: Of the stats that are wanted, in their order.
    """

    size: int
    masks: tuple[int, ...]
    bits: tuple[int, ...]
    values: tuple[Value, ...]

    def fit(self, columns: Columns) -> NDArray[np.bool_]:
        """Which events are laid out so."""
        wrong = np.zeros(len(columns[0]), np.bool_)
        for column, mask, bits in zip(columns, self.masks, self.bits, strict=True):
            if mask:
                wrong |= (column & _U(mask)) != _U(bits)
        return ~wrong

    def decode(self, columns: Columns, value: Value) -> NDArray[np.uint64]:
        """The numbers of one stat; of a double its bits."""
        place, shift = divmod(value.at, 8)
        word = columns[place] >> _U(8 * shift)
        if shift + value.width > 8:
            word |= columns[place + 1] << _U(64 - 8 * shift)
        return word if value.kind == 2 else packed_groups(word, value.width)


def layout_of(buffer: Bytes, start: int, end: int, wanted: frozenset[int]) -> Layout | None:
    """How one event's stats are laid out; ``None`` of what is written in an unusual way.

    Args:
        buffer: The file.
        start: Where its first stat begins.
        end: Where the event ends.
        wanted: Ids of the stats whose values are asked for.
    """
    size = end - start
    if not 0 < size <= _WIDEST:
        return None
    content = buffer[start:end]
    mask = np.zeros(-(-size // 8) * 8, np.uint8)
    values: list[Value] = []
    at = 0
    try:
        while at < size:
            # Its tag, a length of one byte, and its id, which stands first.
            if at + 3 >= size or content[at] != 0x22 or content[at + 1] >= 0x80:
                return None
            after = at + 2 + int(content[at + 1])
            if after > size or content[at + 2] != 0x08:
                return None
            stat, tagged = read_varint(content, at + 3, after)
            mask[at:tagged] = 0xFF
            if stat in wanted:
                if tagged >= after:
                    return None
                value = _value(content, stat, tagged, after)
                if value is None:
                    return None
                mask[tagged] = 0xFF
                if int(content[tagged]) & 7 == VARINT:
                    mask[value.at : value.at + value.width] = 0x80
                values.append(value)
            at = after
    except WireError:
        return None
    padded = np.zeros(len(mask), np.uint8)
    padded[:size] = content
    bits = (padded & mask).view("<u8")
    return Layout(size, tuple(mask.view("<u8").tolist()), tuple(bits.tolist()), tuple(values))


def _value(content: Bytes, stat: int, tagged: int, after: int) -> Value | None:
    """The value whose tag stands there, which must fill the stat."""
    field, wire = divmod(int(content[tagged]), 8)
    at = tagged + 1
    if field == 2 and wire == FIXED64 and at + 8 == after:
        return Value(stat, field, at, 8)
    if field in (3, 4, 7) and wire == VARINT and 0 < after - at <= 8:
        _, end = read_varint(content, at, after)
        return Value(stat, field, at, after - at) if end == after else None
    if field in (5, 6) and wire == LENGTH:
        length, begin = read_varint(content, at, after)
        return Value(stat, field, at, 0) if begin + length == after else None
    return None


def rows_at(buffer: Bytes, positions: Positions, size: int) -> Columns:
    """The bytes behind many positions, eight at a time.

    Args:
        buffer: The file.
        positions: Where rows begin; none so close to the buffer's end that it would not fit.
        size: Bytes of a row; rounded up to eight.
    """
    words = -(-size // 8)
    # One element of so many bytes at every offset: each is copied in one go.
    row = np.dtype(f"V{8 * words}")
    rows = np.ndarray((len(buffer) - 8 * words + 1,), row, buffer.data, 0, (1,))[positions]
    table = rows.view("<u8").reshape(-1, words)
    return [np.ascontiguousarray(table[:, word]) for word in range(words)]


def decode_heads(
    buffer: Bytes, begins: Positions, ends: Positions
) -> tuple[NDArray[np.bool_], Sequence[NDArray[np.int64]], Positions]:
    """The numbers of events that begin as usual: metadata's id, offset, duration.

    Args:
        buffer: The file, and at least 24 bytes behind it.
        begins: Where each event's contents begin.
        ends: Where they end.

    Returns:
        Which events begin so; their three numbers; and where these end, which is where
        the first stat begins. Of the other events all of this means nothing.
    """
    fits = np.asarray(begins <= len(buffer) - _HEAD)
    first, second, third = rows_at(buffer, begins if fits.all() else begins * fits, _HEAD)
    numbers: list[NDArray[np.int64]] = []
    behind = begins.copy()
    for tag in (0x08, 0x10, 0x18):
        fits &= (first & _U(0xFF)) == _U(tag)
        first >>= _U(8)
        first |= second << _U(56)
        second >>= _U(8)
        second |= third << _U(56)
        third >>= _U(8)
        stops = ~first
        stops &= _HIGH_BITS
        below = (stops - _U(1)) & ~stops  # all bits below the lowest one
        numbers.append(packed_groups(first & below, 7).view(np.int64))
        # The width in bits, of at most seven bytes: of more it would shift everything out.
        width = np.bitwise_count(below).astype(np.uint64) + _U(1)
        fits &= width <= _U(56)
        width &= _U(63)
        behind += (width >> _U(3)).view(np.int64) + 1
        left = _U(64) - width
        left &= _U(63)
        first >>= width
        first |= second << left
        second >>= width
        second |= third << left
        third >>= width
    fits &= (behind == ends) | ((behind < ends) & ((first & _U(0xFF)) == _U(0x22)))
    return fits, numbers, behind
