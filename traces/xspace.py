"""An XSpace, the file that a profiler writes: planes, their lines, and what events are called.

Field numbers are those of ``xplane.proto``. Only what is few is read at once; the events of
a line, the names of events and their stats are decoded when they are asked for.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hloscope.errors import InputError
from hloscope.traces.events import Events, decode_events
from hloscope.traces.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    Bytes,
    Field,
    Positions,
    WireError,
    fields,
    split_repeated,
)

__all__ = ["Line", "Metadata", "Plane", "StatValue", "XSpace", "read_xspace"]

StatValue = int | float | str | bytes
"""A stat's value; what refers to a name is that name."""

_PAD = 64  # bytes behind the file, so that several can be read at its last offset
_MAP_KEY, _MAP_VALUE = 1, 2


@dataclass(frozen=True)
class Metadata:
    """What all events of one id have in common.

    Attributes:
        id: The id.
        name: Of a kernel or an operation; on TPUs the instruction's text.
        display_name: A shorter one, or empty.
        stats: By name.
    """

    id: int
    name: str = ""
    display_name: str = ""
    stats: Mapping[str, StatValue] = field(default_factory=dict)


class Line:
    """One line of a plane: a stream, a thread, or one that was derived of others.

    Attributes:
        id: Its number; of a GPU's stream the stream's.
        name: Its name.
        timestamp_ns: What the offsets of its events are counted from.
    """

    def __init__(
        self,
        buffer: Bytes,
        events: tuple[Positions, Positions],
        *,
        number: int,
        name: str,
        timestamp_ns: int,
    ) -> None:
        self.id = number
        self.name = name
        self.timestamp_ns = timestamp_ns
        self._buffer = buffer
        self._begins, self._ends = events

    def __repr__(self) -> str:
        return f"<Line {self.name!r} of {len(self):,} events>"

    def __len__(self) -> int:
        return len(self._begins)

    @property
    def events(self) -> Events:
        """Its events, decoded anew: whoever asks for them keeps what is needed of them.

        Raises:
            WireError: One of them is broken.
        """
        return self.decode()

    def decode(self, into: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None) -> Events:
        """The same, with the offsets and the durations written to given arrays.

        Raises:
            WireError: One of them is broken.
        """
        return decode_events(self._buffer, self._begins, self._ends, into)


class Plane:
    """One device, the threads of a host, or what a profiler has to say besides.

    Attributes:
        name: ``/device:GPU:0``, ``/host:CPU``...
        lines: Its lines, those without events included.
        stat_names: What stats are called, by id.
        stats: The plane's own, by name.
    """

    def __init__(self, buffer: Bytes, start: int, end: int) -> None:
        self.name = ""
        self.lines: list[Line] = []
        self.stat_names: dict[int, str] = {}
        self._buffer = buffer
        self._metadata: dict[int, tuple[int, int]] = {}
        self._known: dict[int, Metadata] = {}
        view = buffer.data
        stats: list[Field] = []
        for each in fields(view, start, end):
            if each.number == 2 and each.wire == LENGTH:
                self.name = _text(view, each)
            elif each.number == 3 and each.wire == LENGTH:
                self.lines.append(_line(buffer, each.value, each.end))
            elif each.number == 4 and each.wire == LENGTH:
                key, value = _entry(view, each)
                self._metadata[key] = value
            elif each.number == 5 and each.wire == LENGTH:
                key, (begin, stop) = _entry(view, each)
                names = [_text(view, one) for one in fields(view, begin, stop) if one.number == 2]
                self.stat_names[key] = names[-1] if names else ""
            elif each.number == 6 and each.wire == LENGTH:
                stats.append(each)
        self.stats = dict(self._stats(stats))

    def __repr__(self) -> str:
        return f"<Plane {self.name!r} of {len(self.lines)} lines>"

    @property
    def metadata_ids(self) -> tuple[int, ...]:
        """The ids of all metadata of events."""
        return tuple(self._metadata)

    def metadata(self, number: int) -> Metadata:
        """What events of an id have in common; of an unknown one a name that says so.

        Raises:
            WireError: The metadata is broken.
        """
        found = self._known.get(number)
        if found is None:
            place = self._metadata.get(number)
            found = Metadata(number, f"event {number}") if place is None else self._read(*place)
            self._known[number] = found
        return found

    def _read(self, start: int, end: int) -> Metadata:
        view = self._buffer.data
        number, name, display, stats = 0, "", "", []
        for each in fields(view, start, end):
            if each.number == 1:
                number = each.value
            elif each.number == 2:
                name = _text(view, each)
            elif each.number == 4:
                display = _text(view, each)
            elif each.number == 5 and each.wire == LENGTH:
                stats.append(each)
        return Metadata(number, name, display, dict(self._stats(stats)))

    def _stats(self, stats: list[Field]) -> Iterator[tuple[str, StatValue]]:
        view = self._buffer.data
        for stat in stats:
            which, value = 0, None
            for each in fields(view, stat.value, stat.end):
                if each.number == 1:
                    which = each.value
                else:
                    value = self._value(view, each)
            if value is not None:
                yield self.stat_names.get(which, f"stat {which}"), value

    def _value(self, view: memoryview, each: Field) -> StatValue | None:
        value: StatValue | None = None
        if each.number == 2 and each.wire == FIXED64:
            value = float(struct.unpack("<d", each.value.to_bytes(8, "little"))[0])
        elif each.number == 3 and each.wire == VARINT:
            value = each.value
        elif each.number == 4 and each.wire == VARINT:
            value = _signed(each.value)
        elif each.number == 5 and each.wire == LENGTH:
            value = _text(view, each)
        elif each.number == 6 and each.wire == LENGTH:
            value = bytes(view[each.value : each.end])
        elif each.number == 7 and each.wire == VARINT:
            value = self.stat_names.get(each.value, "")
        return value


@dataclass(frozen=True)
class XSpace:
    """One file: what one host recorded.

    Attributes:
        planes: In the order of the file.
        errors: What the profiler said went wrong.
        warnings: What it warned of.
        hostnames: Of the host; may be empty.
        place: The file.
    """

    planes: tuple[Plane, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    hostnames: tuple[str, ...]
    place: str


def read_xspace(path: Path) -> XSpace:
    """Read a file, gzipped or not.

    Raises:
        InputError: It cannot be read, or is no XSpace.
    """
    buffer, size = _read(path)
    view = buffer.data
    planes: list[Plane] = []
    texts: dict[int, list[str]] = {2: [], 3: [], 4: []}
    try:
        for each in fields(view, 0, size):
            if each.number == 1 and each.wire == LENGTH:
                planes.append(Plane(buffer, each.value, each.end))
            elif each.number in texts and each.wire == LENGTH:
                texts[each.number].append(_text(view, each))
            else:
                raise WireError(f"a field {each.number}, which an XSpace has not", each.end)
    except WireError as error:
        raise InputError(
            f"this is no whole XSpace: {error}",
            place=str(path),
            hint="Take the file again from where it was recorded: it is cut off, was changed on "
            "its way, or was still being written.",
        ) from error
    errors, warnings, hostnames = (tuple(texts[number]) for number in (2, 3, 4))
    return XSpace(tuple(planes), errors, warnings, hostnames, place=str(path))


def _read(path: Path) -> tuple[Bytes, int]:
    """The bytes of a file with room behind them, and how many there are."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        if packed:
            with gzip.open(path) as file:
                content = np.frombuffer(file.read() + bytes(_PAD), np.uint8)
            return content, len(content) - _PAD
        size = path.stat().st_size
        buffer = np.zeros(size + _PAD, np.uint8)
        with path.open("rb") as file:
            size = file.readinto(buffer.data[:size])
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", place=str(path)) from error
    return buffer, size


def _line(buffer: Bytes, start: int, end: int) -> Line:
    """A line; its events are found, and not decoded."""
    view = buffer.data
    number = timestamp = 0
    names = {2: "", 11: ""}
    begins: list[Positions] = []
    ends: list[Positions] = []
    at = start
    while at < end:
        if view[at] == 0x22:
            begin, stop, at = split_repeated(buffer, at, end, 4)
            begins.append(begin)
            ends.append(stop)
            continue
        each = next(fields(view, at, end))
        at = each.end
        if each.number == 1 and each.wire == VARINT:
            number = _signed(each.value)
        elif each.number == 3 and each.wire == VARINT:
            timestamp = _signed(each.value)
        elif each.number in names and each.wire == LENGTH:
            names[each.number] = _text(view, each)
    return Line(
        buffer,
        (_in_one(begins), _in_one(ends)),
        number=number,
        name=names[2] or names[11],
        timestamp_ns=timestamp,
    )


def _in_one(parts: list[Positions]) -> Positions:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _entry(view: memoryview, each: Field) -> tuple[int, tuple[int, int]]:
    """The key of a map's entry, and where its value begins and ends."""
    key, value = 0, (each.end, each.end)
    for part in fields(view, each.value, each.end):
        if part.number == _MAP_KEY:
            key = _signed(part.value)
        elif part.number == _MAP_VALUE and part.wire == LENGTH:
            value = part.value, part.end
    return key, value


def _text(view: memoryview, each: Field) -> str:
    return bytes(view[each.value : each.end]).decode("utf-8", "replace")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
