"""An XSpace as a recording."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hloscope.errors import InputError
from hloscope.traces.codes import places_of
from hloscope.traces.events import Events, StatColumn, StatKind
from hloscope.traces.recording import NONE, Lane, Recording, Section, TextColumn
from hloscope.traces.wire import WireError, read_varint
from hloscope.traces.xspace import Line, Metadata, Plane, XSpace

__all__ = ["recording_of"]

_METADATA = "/host:metadata"
_ENVIRONMENT = "Task Environment"
_PROTO = ("Hlo Proto", "HLO Proto")
_NUMBERED = re.compile(r"\((-?\d+)\)$")

# Half of what 64 bits hold, in picoseconds: 53 days between two events of one recording.
_FARTHEST_PS = 1 << 62


def recording_of(space: XSpace) -> Recording:
    """Read the events of an XSpace.

    Raises:
        InputError: Some of it is broken.
    """
    try:
        return _Reader(space).read()
    except WireError as error:
        raise InputError(
            f"this is no whole XSpace: {error}",
            place=space.place,
            hint="Take the file again from where it was recorded.",
        ) from error


class _Reader:
    def __init__(self, space: XSpace) -> None:
        self.space = space
        self.notes: list[str] = [f"the profiler says: {text}" for text in space.errors]
        self.notes += [f"the profiler warns: {text}" for text in space.warnings]
        self.far = self.aggregated = self.backwards = 0

    def read(self) -> Recording:
        lines = [line for plane in self.space.planes for line in plane.lines if len(line)]
        origin = _origin([line.timestamp_ns for line in lines])
        by_name: dict[str, list[Plane]] = defaultdict(list)
        for plane in self.space.planes:
            by_name[plane.name].append(plane)
        sections = tuple(
            self.section(name, planes, origin)
            for name, planes in by_name.items()
            if name not in (_METADATA, _ENVIRONMENT)
        )
        environment = {
            key: value
            for plane in by_name.get(_ENVIRONMENT, [])
            for key, value in plane.stats.items()
        }
        for count, what in (
            (self.far, "events lie more than 53 days from the others"),
            (self.aggregated, "events stand for several, without a place in time"),
            (self.backwards, "events end before they begin"),
        ):
            if count:
                self.notes.append(f"{count:,} {what}: left out")
        return Recording(
            host=", ".join(self.space.hostnames) or self.space.place,
            place=self.space.place,
            sections=sections,
            programs=dict(_programs(by_name.get(_METADATA, []))),
            notes=tuple(self.notes),
            start_ns=_number(environment.get("profile_start_time")),
            stop_ns=_number(environment.get("profile_stop_time")),
        )

    def section(self, name: str, planes: Sequence[Plane], origin: int) -> Section:
        lanes = []
        for plane in planes:
            # Of one line that was cut into several, each is a lane; nothing adds them up
            # but a union, to which that is the same.
            lanes += [self.lane(plane, line, origin) for line in plane.lines if len(line)]
        stats = {key: value for plane in planes for key, value in plane.stats.items()}
        return Section(name, tuple(lane for lane in lanes if len(lane)), stats)

    def lane(self, plane: Plane, line: Line, origin: int) -> Lane:
        events = line.events
        self.aggregated += events.aggregated
        shift = (line.timestamp_ns - origin) * 1000
        near = (np.abs(events.offset_ps) < _FARTHEST_PS) & (events.duration_ps < _FARTHEST_PS)
        if abs(shift) >= _FARTHEST_PS:
            near[:] = False
            shift = 0
        forwards = events.duration_ps >= 0
        self.far += int(np.count_nonzero(~near))
        self.backwards += int(np.count_nonzero(near & ~forwards))
        kept = near & forwards
        if not kept.all():
            events = events.only(np.flatnonzero(kept))
        begins = events.offset_ps + shift
        labels, metadata = _labels(plane, events.metadata)
        return Lane(
            name=line.name,
            id=line.id,
            begins=begins,
            ends=begins + events.duration_ps,
            labels=labels,
            about=lambda code: metadata[code].stats,
            stats=_Stats(plane, events),
        )


def _origin(timestamps: Sequence[int]) -> int:
    """The earliest timestamp, of those that lie where most of them do."""
    if not timestamps:
        return 0
    middle = sorted(timestamps)[len(timestamps) // 2]
    return min(each for each in timestamps if abs(each - middle) < _FARTHEST_PS // 1000)


def _labels(plane: Plane, ids: NDArray[np.int64]) -> tuple[TextColumn, list[Metadata]]:
    codes, known = places_of(ids)
    metadata = [plane.metadata(number) for number in known.tolist()]
    return TextColumn(codes, [each.name or each.display_name for each in metadata]), metadata


class _Stats:
    """See ``hloscope.traces.recording.Stats``."""

    def __init__(self, plane: Plane, events: Events) -> None:
        self._plane = plane
        self._events = events
        self._ids = {name: number for number, name in plane.stat_names.items()}
        self._columns: dict[str, StatColumn] = {}

    def names(self) -> frozenset[str]:
        return frozenset(self._ids)

    def fetch(self, names: Sequence[str]) -> None:
        missing = [n for n in names if n in self._ids and n not in self._columns]
        found = self._events.stats(self._ids[name] for name in missing)
        self._columns.update({name: found[self._ids[name]] for name in missing})

    def present(self, name: str) -> NDArray[np.bool_]:
        column = self._column(name)
        return np.zeros(len(self._events), np.bool_) if column is None else column.present

    def numbers(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        column = self._column(name)
        if column is None:
            return np.zeros(len(self._events), np.int64), np.zeros(len(self._events), np.bool_)
        whole = (column.kinds == StatKind.INT) | (column.kinds == StatKind.UINT)
        return column.numbers(), whole

    def texts(self, name: str) -> TextColumn:
        column = self._column(name)
        codes = np.full(len(self._events), NONE, np.int32)
        words: list[str] = []
        if column is None:
            return TextColumn(codes, words)
        referring = column.kinds == StatKind.REFERENCE
        if referring.any():
            codes[referring], known = places_of(column.values[referring].view(np.int64))
            words += [self._plane.stat_names.get(number, "") for number in known.tolist()]
        written = np.flatnonzero(column.kinds == StatKind.STRING)
        if len(written):
            places = {word: place for place, word in enumerate(words)}
            for event, word in zip(written.tolist(), self._written(column, written), strict=True):
                codes[event] = places.setdefault(word, len(places))
            words = list(places)
        return TextColumn(codes, words)

    def _written(self, column: StatColumn, events: NDArray[np.int64]) -> Iterator[str]:
        buffer = self._events.buffer
        view = buffer.data
        for at in column.values[events].tolist():
            length, begin = read_varint(buffer, at, len(buffer))
            yield bytes(view[begin : begin + length]).decode("utf-8", "replace")

    def _column(self, name: str) -> StatColumn | None:
        self.fetch([name])
        return self._columns.get(name)


def _programs(planes: Sequence[Plane]) -> Iterator[tuple[int, Callable[[], bytes]]]:
    """The modules in the metadata plane by program id, each read when it is asked for."""
    for plane in planes:
        for number in plane.metadata_ids:
            found = plane.metadata(number)
            proto = next((found.stats[key] for key in _PROTO if key in found.stats), None)
            if not isinstance(proto, bytes):
                continue
            numbered = _NUMBERED.search(found.name)
            said = _number(found.stats.get("program_id"))
            program = said if said is not None else int(numbered[1]) if numbered else number
            yield program, _giving(proto)


def _giving(content: bytes) -> Callable[[], bytes]:
    return lambda: content


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
