"""An XSpace as a recording."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hloscope.errors import InputError
from hloscope.traces.codes import places_of
from hloscope.traces.events import Events, EventStats, StatColumn, StatKind
from hloscope.traces.recording import NONE, Lane, Recording, Section, TextColumn
from hloscope.traces.wire import WireError
from hloscope.traces.written_texts import codes_of_texts
from hloscope.traces.xspace import Line, Metadata, Plane, XSpace

__all__ = ["recording_of"]

_METADATA = "/host:metadata"
_ENVIRONMENT = "Task Environment"
_PROTO = ("Hlo Proto", "HLO Proto")
_NUMBERED = re.compile(r"\((-?\d+)\)$")

# Half of what 64 bits hold, in picoseconds: 53 days between two events of one recording.
_FARTHEST_PS = 1 << 62

_SAMPLE = 4_096  # events that tell what a lane's events are


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
        # Of one line that was cut into several, each is a lane; nothing adds them up
        # but a union, to which that is the same.
        lines = [(plane, line) for plane in planes for line in plane.lines if len(line)]
        # Times of all lanes lie one behind the other, as whoever joins them wants them.
        size = sum(len(line) for _, line in lines)
        begins, ends = np.empty(size, np.int64), np.empty(size, np.int64)
        lanes, behind = [], 0
        for plane, line in lines:
            here = slice(behind, behind + len(line))
            behind = here.stop
            lanes.append(self.lane(plane, line, origin, (begins[here], ends[here])))
        stats = {key: value for plane in planes for key, value in plane.stats.items()}
        return Section(name, tuple(lane for lane in lanes if len(lane)), stats)

    def lane(
        self,
        plane: Plane,
        line: Line,
        origin: int,
        times: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> Lane:
        events = line.decode(times)
        self.aggregated += events.aggregated
        shift = (line.timestamp_ns - origin) * 1000
        if abs(shift) >= _FARTHEST_PS:
            self.far += len(events)
            events = events.only(np.empty(0, np.int64))
            shift = 0
        elif not _all_usual(events):
            near = (np.abs(events.offset_ps) < _FARTHEST_PS) & (events.duration_ps < _FARTHEST_PS)
            kept = near & (events.duration_ps >= 0)
            self.far += int(np.count_nonzero(~near))
            self.backwards += int(np.count_nonzero(near & ~kept))
            events = events.only(np.flatnonzero(kept))
        labels, metadata = _labels(plane, events.metadata)
        # Nobody else holds the events: their columns become the lane's.
        begins, ends = events.offset_ps, events.duration_ps
        begins += shift
        ends += begins
        return Lane(
            name=line.name,
            id=line.id,
            begins=begins,
            ends=ends,
            labels=labels,
            about=lambda code: metadata[code].stats,
            stats=_Stats(plane.stat_names, events.places),
        )


def _all_usual(events: Events) -> bool:
    """Whether no event is far from the others or ends before it begins."""
    if not len(events):
        return True
    offset, duration = events.offset_ps, events.duration_ps
    return (
        int(offset.min()) > -_FARTHEST_PS
        and int(offset.max()) < _FARTHEST_PS
        and int(duration.min()) >= 0
        and int(duration.max()) < _FARTHEST_PS
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

    def __init__(self, names: Mapping[int, str], events: EventStats) -> None:
        self._names = names
        self._events = events
        self._ids = {name: number for number, name in names.items()}
        self._columns: dict[str, StatColumn] = {}

    def names(self) -> frozenset[str]:
        return frozenset(self._ids)

    def fetch(self, names: Sequence[str]) -> None:
        missing = [n for n in names if n in self._ids and n not in self._columns]
        found = self._events.stats(self._ids[name] for name in missing)
        self._columns.update({name: found[self._ids[name]] for name in missing})

    def release(self) -> None:
        self._columns.clear()

    def share(self, names: Sequence[str]) -> float:
        size = len(self._events)
        known = [self._ids[name] for name in names if name in self._ids]
        if not size or not known:
            return 0.0
        # Evenly from all of them: a lane may begin with something else.
        sample = np.unique(np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64))
        found = self._events.only(sample).stats(known).values()
        having = np.logical_or.reduce([column.present for column in found])
        return float(np.mean(having))

    def present(self, name: str) -> NDArray[np.bool_]:
        column = self._column(name)
        return np.zeros(len(self._events), np.bool_) if column is None else column.present

    def numbers(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        column = self._column(name)
        if column is None:
            return np.zeros(len(self._events), np.int64), np.zeros(len(self._events), np.bool_)
        return column.numbers()

    def texts(self, name: str) -> TextColumn:
        column = self._column(name)
        words: list[str] = []
        if column is None:
            return TextColumn(np.full(len(self._events), NONE, np.int32), words)
        referring = column.kinds == StatKind.REFERENCE
        if len(referring) and referring.all():
            codes, known = places_of(column.values.view(np.int64))
            return TextColumn(codes, self._referred(known))
        codes = np.full(len(self._events), NONE, np.int32)
        if referring.any():
            codes[referring], known = places_of(column.values[referring].view(np.int64))
            words += self._referred(known)
        written = np.flatnonzero(column.kinds == StatKind.STRING)
        if len(written):
            places = {word: place for place, word in enumerate(words)}
            ends = self._events.ends[written]
            at = column.values[written].view(np.int64)
            codes[written] = codes_of_texts(self._events.buffer, at, ends, places)
            words = list(places)
        return TextColumn(codes, words)

    def _referred(self, ids: NDArray[np.int64]) -> list[str]:
        return [self._names.get(number, "") for number in ids.tolist()]

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
