"""Protocol-buffer wire format in numpy: millions of small messages as columns of numbers.

A profile is one message of hundreds of megabytes that holds millions of events of some
fifty bytes. Parsing each into an object takes minutes and gigabytes; here one call finds
the ends of all of them, and one call decodes the next field of all of them at once.

Positions are byte offsets into one buffer. Everything is checked against the end of the
message it stands in, so that a broken file gives ``WireError`` and never a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FIXED32",
    "FIXED64",
    "LENGTH",
    "VARINT",
    "Bytes",
    "Field",
    "Positions",
    "WireError",
    "Words",
    "fields",
    "packed_groups",
    "read_varint",
    "split_repeated",
    "varints_at",
]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Bytes = NDArray[np.uint8]
"""The buffer."""

Positions = NDArray[np.int64]
"""Byte offsets into the buffer."""

Words = NDArray[np.uint64]
"""The eight bytes at every offset, as little-endian numbers; see ``words_of``."""

_LANES = 4096  # chains that are followed at once
_SPARSE = 1 << 16  # bytes below which one plain loop is quicker
_LONGEST = 10  # bytes of a varint
_TRIED = 4  # messages in a row that make a guess worth following


class WireError(ValueError):
    """Bytes that are no message.

    Args:
        message: What is wrong.
        position: Where, as an offset into the buffer.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at byte {position:,}")
        self.position = position


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: Its number.
        wire: ``VARINT``, ``FIXED64``, ``LENGTH`` or ``FIXED32``.
        value: The number; of ``LENGTH`` where its contents begin.
        end: Where the contents, or the number, end.
    """

    number: int
    wire: int
    value: int
    end: int


def read_varint(buffer: Bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """One varint: its value, as an unsigned 64-bit number, and where it ends.

    Raises:
        WireError: It is cut off by the end, or has more than ten bytes.
    """
    value = shift = 0
    for at in range(position, min(end, position + _LONGEST)):
        byte = int(buffer[at])
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
        shift += 7
    raise WireError("a number without an end", position)


def fields(buffer: memoryview, start: int, end: int) -> Iterator[Field]:
    """The fields of one message, one after another; for messages that are few.

    Raises:
        WireError: A field reaches beyond the message, or has a type that does not exist.
    """
    position = start
    while position < end:
        tag, at = read_varint(buffer, position, end)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise WireError("a field of number 0", position)
        if wire == VARINT:
            value, position = read_varint(buffer, at, end)
            yield Field(number, wire, value, position)
            continue
        if wire == LENGTH:
            size, at = read_varint(buffer, at, end)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise WireError(f"a field of type {wire}, which does not exist", position)
        if size > end - at:
            raise WireError(f"a field of {size:,} bytes in {end - at:,}", position)
        value = at if wire == LENGTH else int.from_bytes(buffer[at : at + size], "little")
        position = at + size
        yield Field(number, wire, value, position)


def words_of(buffer: Bytes) -> Words:
    """The eight bytes that begin at every offset, without a copy.

    Args:
        buffer: At least eight bytes longer than what is read of it.
    """
    return np.ndarray((len(buffer) - 7,), np.dtype("<u8"), buffer.data, 0, (1,))


_U = np.uint64
_HIGH_BITS = _U(0x8080_8080_8080_8080)


def varints_at(
    words: Words, positions: Positions, buffer: Bytes
) -> tuple[NDArray[np.uint64], Positions]:
    """The varints at many positions: their values, and where each ends.

    Args:
        words: Of the buffer.
        positions: Where they begin.
        buffer: For those of more than eight bytes.

    Raises:
        WireError: One of them has more than ten bytes.
    """
    word = words[positions]
    stops = ~word & _HIGH_BITS  # the high bit of each byte that ends a varint
    lowest = stops & (~stops + _U(1))
    # The bytes up to the first stop; of all eight where there is none.
    word &= (lowest << _U(1)) - _U(1)
    length = np.bitwise_count((lowest - _U(1)) & _HIGH_BITS).astype(np.int64) + 1
    word = packed_groups(word, 8)
    long = np.flatnonzero(stops == 0)
    if len(long):
        word[long], length[long] = _long_varints(words[positions[long]], positions[long], buffer)
    return word, positions + length


def packed_groups(word: NDArray[np.uint64], width: int) -> NDArray[np.uint64]:
    """The low seven bits of some bytes, side by side.

    Args:
        word: The bytes, the first one lowest.
        width: How many of them count, from one to eight.
    """
    word = word & _U(0x7F7F_7F7F_7F7F_7F7F >> 8 * (8 - width))
    # Pairs, then fours, then eights.
    for mask, shift, widest in (
        (0x7F00_7F00_7F00_7F00, 1, 1),
        (0x3FFF_0000_3FFF_0000, 2, 2),
        (0x0FFF_FFFF_0000_0000, 4, 4),
    ):
        if width > widest:
            upper = word & _U(mask)
            word ^= upper
            word |= upper >> _U(shift)
    return word


def _long_varints(
    word: Words, positions: Positions, buffer: Bytes
) -> tuple[NDArray[np.uint64], Positions]:
    """Varints of nine or ten bytes, as negative numbers and hashes are: values and lengths."""
    last = len(buffer) - 1
    ninth, tenth = (buffer[np.minimum(positions + n, last)].astype(np.uint64) for n in (8, 9))
    more = ninth >= _U(0x80)
    wrong = (positions + 8 + more > last) | (more & (tenth >= _U(0x80)))
    if wrong.any():
        raise WireError("a number without an end", int(positions[wrong][0]))
    value = packed_groups(word, 8) | (ninth & _U(0x7F)) << _U(56)
    value |= np.where(more, tenth << _U(63), _U(0))
    return value, more.astype(np.int64) + 9


def split_repeated(
    buffer: Bytes, start: int, end: int, number: int
) -> tuple[Positions, Positions, int]:
    """Where each message of a repeated field begins and ends, for a row of them.

    Args:
        buffer: Holds them, and at least eight bytes behind the end.
        start: Offset of the first one's tag.
        end: Offset behind the message that they stand in.
        number: The field's, below 16.

    Returns:
        Where their contents begin and end, and where the row ends: at another field, or
        at the end of the message.

    Raises:
        WireError: One of them reaches beyond the message that they stand in.
    """
    tag = number << 3 | LENGTH
    small = end - start <= _SPARSE
    pieces, stop = (_follow if small else _follow_lanes)(buffer, start, end, tag)
    # Each message ends where the next one's tag stands.
    edges = np.concatenate([*pieces, np.asarray([stop])])
    return _behind_lengths(buffer, edges[:-1]), edges[1:], stop


def _follow(buffer: Bytes, start: int, end: int, tag: int) -> tuple[list[Positions], int]:
    """Offsets of the tags, from one to the next in a plain loop, and where they stop."""
    found, at = [], start
    while at < end and int(buffer[at]) == tag:
        found.append(at)
        at = _next(buffer, at, end)
    return [np.asarray(found, np.int64)], at


def _follow_lanes(buffer: Bytes, start: int, end: int, tag: int) -> tuple[list[Positions], int]:
    """The same for many: chains from guessed places, followed side by side.

    A lane begins where a few messages in a row would fit. That may be inside of a message,
    among its own parts; its chain then soon comes to that message's end, and is right from
    there on. Where the chain from the start, which is right for certain, meets a lane's,
    the rest of the lane is right, too. Up to there a plain loop goes on.
    """
    words = words_of(buffer)
    stride = max((end - start) // _LANES, _SPARSE // _LANES)
    guesses = np.arange(start + stride, end - 64, stride, dtype=np.int64)
    begins = np.unique(np.append(_synchronise(words, guesses, end, tag), start))
    chains, stops = _chains(words, begins, end, tag)
    pieces: list[Positions] = []
    at = start
    while at < end and int(buffer[at]) == tag:
        lane = int(np.searchsorted(begins, at, "right")) - 1
        chain = chains[lane]
        met = int(np.searchsorted(chain, at))
        if met < len(chain) and chain[met] == at:
            pieces.append(chain[met:])
            at = int(stops[lane])
        else:
            pieces.append(np.asarray([at]))
            at = _next(buffer, at, end)
    return pieces, at


def _lengths(words: Words, at: Positions, tag: int) -> tuple[NDArray[np.bool_], Positions]:
    """Whether a tag stands at each position, and where the message behind it would end."""
    word = words[at]
    # The usual message: its length has one byte.
    usual = (word & _U(0x80FF)) == _U(tag)
    if usual.all():
        return usual, at + (((word >> _U(8)) & _U(0x7F)).view(np.int64) + 2)
    right = (word & _U(0xFF)) == _U(tag)
    first, second, third = ((word >> _U(shift)) & _U(0xFF) for shift in (8, 16, 24))
    short, middle = first < _U(0x80), second < _U(0x80)
    length = first & _U(0x7F)
    length += np.where(short, _U(0), (second & _U(0x7F)) << _U(7))
    length += np.where(short | middle, _U(0), third << _U(14))
    # A message of over two megabytes is no event: it is left to the plain loop.
    right &= short | middle | (third < _U(0x80))
    header = np.where(short, 2, np.where(middle, 3, 4))
    return right, at + header + length.astype(np.int64)


def _synchronise(words: Words, guesses: Positions, end: int, tag: int) -> Positions:
    """From each guess the next place where several messages in a row would fit."""
    last = end - 16
    found = np.full(len(guesses), end, np.int64)
    open_ = np.arange(len(guesses))
    at = guesses.copy()
    for _ in range(512):
        ahead = np.minimum(at[open_], last)
        fits = at[open_] < last
        for _ in range(_TRIED):
            right, after = _lengths(words, np.minimum(ahead, last), tag)
            fits &= right & (after <= end)
            ahead = np.where(fits & (after < last), after, ahead)
        found[open_[fits]] = at[open_[fits]]
        open_ = open_[~fits]
        at[open_] += 1
        open_ = open_[at[open_] < last]
        if not len(open_):
            break
    return found[found < end]


def _chains(
    words: Words, begins: Positions, end: int, tag: int
) -> tuple[list[Positions], Positions]:
    """From each beginning the tags before the next beginning, and where the chain stopped."""
    limits = np.append(begins[1:], end)
    at = begins.copy()
    running = np.arange(len(begins))
    tags: list[Positions] = []
    while len(running):
        here = at[running]
        right, after = _lengths(words, here, tag)
        right &= after <= end
        running, here, after = running[right], here[right], after[right]
        tags.append(here)
        at[running] = after
        # The words of the last seven bytes would reach beyond the buffer.
        running = running[after < np.minimum(limits[running], len(words))]
    every = np.sort(np.concatenate(tags)) if tags else begins[:0]
    return np.split(every, np.searchsorted(every, begins[1:])), at


def _next(buffer: Bytes, at: int, end: int) -> int:
    """Where the message whose tag stands at a position ends."""
    length, behind = read_varint(buffer, at + 1, end)
    if length > end - behind:
        raise WireError(f"a message of {length:,} bytes in {end - behind:,}", at)
    return behind + length


def _behind_lengths(buffer: Bytes, starts: Positions) -> Positions:
    """Where the contents behind tags and lengths begin."""
    begins = starts + 2
    going = np.flatnonzero(buffer[starts + 1] >= 0x80)
    while len(going):
        begins[going] += 1
        going = going[buffer[begins[going] - 1] >= 0x80]
    return begins
