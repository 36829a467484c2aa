"""An XSpace, the file that a profiler writes: planes, their lines, and what events are called.

Field numbers are those of ``xplane.proto``. Only what is few is read at once; the events of
a line, the names of events and their stats are decoded when they are asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hloscope.errors import InputError
from hloscope.traces.events import Events, decode_events
from hloscope.traces.files import content_of
from hloscope.traces.other_files import what_else
from hloscope.traces.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    Bytes,
    Field,
    Positions,
    WireError,
    fields,
    read_varint,
    split_repeated,
)

__all__ = ["Line", "Metadata", "Plane", "StatValue", "XSpace", "read_xspace"]

StatValue = int | float | str | bytes
"""A stat's value; what refers to a name is that name."""

_PAD = 64  # bytes behind the file, so that several can be read at its last offset
_LARGEST = 1 << 31  # bytes of a message, of which no serializer makes a larger one
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

    Args:
        buffer: Of the whole file.
        start: Where its contents begin.
        end: Where they end.
        cut: Whether the file ends before the plane does: what is whole is read.

    Raises:
        WireError: It is no plane.
    """

    def __init__(self, buffer: Bytes, start: int, end: int, *, cut: bool = False) -> None:
        self.name = ""
        self.lines: list[Line] = []
        self.stat_names: dict[int, str] = {}
        self._buffer = buffer
        self._metadata: dict[int, tuple[int, int]] = {}
        self._known: dict[int, Metadata] = {}
        view = buffer.data
        stats: list[Field] = []
        for each in _before_cut(view, start, end) if cut else fields(view, start, end):
            if each.number <= 6 and each.wire != (VARINT if each.number == 1 else LENGTH):
                raise WireError("a field that no plane has", each.end)
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
        cut: Where the file is cut off, in a sentence; empty of a whole one.
    """

    planes: tuple[Plane, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    hostnames: tuple[str, ...]
    place: str
    cut: str = ""


def read_xspace(path: Path) -> XSpace:
    """Read a file, gzipped or not; of one that is cut off the planes before the cut.

    Raises:
        InputError: It cannot be read, or is no XSpace.
    """
    buffer, packed_cut = content_of(path, _PAD)
    size = len(buffer) - _PAD
    if not size:
        raise InputError(
            "the gzip file is cut off before its contents" if packed_cut else "the file is empty",
            place=str(path),
            hint="Wait until the profiler has stopped and written it, or profile again.",
        )
    view = buffer.data
    planes: list[Plane] = []
    texts: dict[int, list[str]] = {2: [], 3: [], 4: []}
    cut, at = "", 0
    try:
        while at < size:
            try:
                each = next(fields(view, at, size))
            except WireError as error:
                last, cut = _cut_plane(buffer, at, size, error)
                planes += [] if last is None else [last]
                break
            at = each.end
            if each.number == 1 and each.wire == LENGTH:
                planes.append(Plane(buffer, each.value, each.end))
            elif each.number in texts and each.wire == LENGTH:
                texts[each.number].append(_text(view, each))
            else:
                raise WireError(f"a field {each.number}, which an XSpace has not", each.end)
    except WireError as error:
        other = what_else(bytes(view[: min(size, 1 << 12)]))
        raise InputError(
            f"this is no XSpace, but {other[0]}" if other else f"this is no whole XSpace: {error}",
            place=str(path),
            hint=other[1]
            if other
            else "Take the file again from where it was recorded: it is cut off, was changed on "
            "its way, or was still being written.",
        ) from error
    if packed_cut and not cut:
        cut = "the gzip file is cut off: what would follow is missing"
    errors, warnings, hostnames = (tuple(texts[number]) for number in (2, 3, 4))
    return XSpace(tuple(planes), errors, warnings, hostnames, place=str(path), cut=cut)


def _before_cut(view: memoryview, start: int, end: int) -> Iterator[Field]:
    """The fields of a message before the place where the file was cut off."""
    try:
        yield from fields(view, start, end)
    except WireError:
        return


def _cut_plane(buffer: Bytes, at: int, size: int, error: WireError) -> tuple[Plane | None, str]:
    """What of the last field of a file can be read, and a sentence on what is missing.

    Args:
        buffer: The file.
        at: Where the field begins.
        size: Where the file ends.
        error: Why the field is not whole.

    Raises:
        WireError: The field is broken, not cut off.
    """
    tag, begin = read_varint(buffer, at, size)
    if tag & 7 != LENGTH or not 1 <= tag >> 3 <= 4:
        raise error
    try:
        length, begin = read_varint(buffer, begin, size)
    except WireError:
        if size - begin >= 5:  # as many as a length has at most
            raise
        length, begin = 1, size
    if length > _LARGEST:
        raise error
    cut = f"the file is cut off at byte {size:,} of {begin + length:,} or more"
    plane = Plane(buffer, begin, size, cut=True) if tag >> 3 == 1 else None
    if plane is None or not plane.name:
        return None, f"{cut}: what follows is missing"
    cut += f", within the plane {plane.name}"
    if plane.lines and not plane.stat_names:
        # Names stand behind the events: without them nobody can say what these are.
        events = sum(len(line) for line in plane.lines)
        return None, (
            f"{cut}: the {events:,} events of it that can be read have no names yet and are left "
            "out, and what follows is missing"
        )
    if plane.lines:
        cut += ", some of whose names are missing"
    return plane, f"{cut}: what follows is missing"


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
        if each.number <= 4 and each.wire != (VARINT if each.number in (1, 3) else LENGTH):
            raise WireError("a field that no line has", at)
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
