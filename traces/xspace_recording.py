"""An XSpace as a recording."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hloscope.errors import InputError
from hloscope.traces.codes import places_of
from hloscope.traces.events import Events, EventStats, StatColumn, StatKind
from hloscope.traces.recording import NONE, Lane, Recording, Section, TextColumn, signed
from hloscope.traces.wire import WireError
from hloscope.traces.written_texts import codes_of_texts
from hloscope.traces.xspace import Line, Metadata, Plane, XSpace

__all__ = ["recording_of"]

_METADATA = "/host:metadata"
_ENVIRONMENT = "Task Environment"
_PROTO = ("Hlo Proto", "HLO Proto")
_NUMBERED = re.compile(r"\((-?\d+)\)$")

# A quarter of what 64 bits hold, in picoseconds, so that three of them can be added up:
# 26 days between two events of one recording.
_FARTHEST_PS = 1 << 61

# Clocks of devices and hosts agree to far less than this.
_SLACK_PS = 10**12

_SAMPLE = 4_096  # events that tell what a lane's events are


def recording_of(space: XSpace) -> Recording:
    """Read the events of an XSpace.

    Raises:
        InputError: Some of it is broken.
    """
    try:
        return _Reader(space).read()
    except WireError as error:
        raise _broken(error, space.place) from error


def _broken(error: WireError, place: str) -> InputError:
    return InputError(
        f"this is no whole XSpace: {error}",
        place=place,
        hint="Take the file again from where it was recorded: it was changed on its way.",
    )


class _Reader:
    def __init__(self, space: XSpace) -> None:
        self.space = space
        self.notes: list[str] = [f"the profiler says: {text}" for text in space.errors]
        self.notes += [f"the profiler warns: {text}" for text in space.warnings]
        self.far = self.aggregated = self.backwards = self.outside = 0
        self.recorded: tuple[int, int] | None = None

    def read(self) -> Recording:
        lines = [line for plane in self.space.planes for line in plane.lines if len(line)]
        origin = _origin([line.timestamp_ns for line in lines])
        by_name: dict[str, list[Plane]] = defaultdict(list)
        for plane in self.space.planes:
            by_name[plane.name].append(plane)
        environment = {
            key: value
            for plane in by_name.get(_ENVIRONMENT, [])
            for key, value in plane.stats.items()
        }
        start = _number(environment.get("profile_start_time"))
        stop = _number(environment.get("profile_stop_time"))
        self.recorded = _recorded(start, stop, origin)
        sections = tuple(
            self.section(name, planes, origin)
            for name, planes in by_name.items()
            if name not in (_METADATA, _ENVIRONMENT)
        )
        for count, what in (
            (self.far, "events lie more than 26 days from the others"),
            (self.aggregated, "events stand for several, without a place in time"),
            (self.backwards, "events end before they begin"),
            (self.outside, "events lie outside of the recording, or are longer than all of it"),
        ):
            if count:
                self.notes.append(f"{count:,} {what}: left out")
        return Recording(
            host=", ".join(self.space.hostnames) or self.space.place,
            place=self.space.place,
            sections=sections,
            programs=dict(_programs(by_name.get(_METADATA, []))),
            notes=tuple(self.notes),
            cut=self.space.cut,
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
        lanes = self.within(name, lanes)
        stats = {
            key: value
            for plane in planes
            for key, value in plane.stats.items()
            if not isinstance(value, float) or math.isfinite(value)
        }
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
            near = (events.offset_ps > -_FARTHEST_PS) & (events.offset_ps < _FARTHEST_PS)
            near &= events.duration_ps < _FARTHEST_PS
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
            stats=_Stats(plane.stat_names, events.places, self.space.place),
        )

    def within(self, name: str, lanes: list[Lane]) -> list[Lane]:
        """The lanes of a plane without what lies outside of the recording."""
        if self.recorded is None:
            return lanes
        first, last = self.recorded
        marks = [
            (lane.begins > last) | (lane.ends < first) | (lane.ends - lane.begins > last - first)
            for lane in lanes
        ]
        outside = sum(int(np.count_nonzero(mark)) for mark in marks)
        if outside > sum(map(len, lanes)) / 2:
            self.notes.append(
                f"{name}: most of its events lie outside of the recording's own start and stop; "
                "its clock is another one, and nothing is left out"
            )
            return lanes
        self.outside += outside
        return [
            _only(lane, np.flatnonzero(~mark)) if mark.any() else lane
            for lane, mark in zip(lanes, marks, strict=True)
        ]


def _only(lane: Lane, kept: NDArray[np.int64]) -> Lane:
    """Some events of a lane."""
    assert isinstance(lane.stats, _Stats)
    return replace(
        lane,
        begins=lane.begins[kept],
        ends=lane.ends[kept],
        labels=TextColumn(lane.labels.codes[kept], lane.labels.words),
        stats=lane.stats.only(kept),
    )


def _recorded(start: int | None, stop: int | None, origin: int) -> tuple[int, int] | None:
    """From when to when an event may lie, in picoseconds from the origin.

    Args:
        start: When the recording began, in nanoseconds since 1970.
        stop: When it ended.
        origin: The earliest timestamp of a line, in nanoseconds: since 1970, or since the
            start, which newer profilers write.
    """
    if start is None or stop is None or not 0 < stop - start < _FARTHEST_PS // 1000:
        return None
    begin = ((start if origin > start // 2 else 0) - origin) * 1000
    if abs(begin) > _FARTHEST_PS:
        return None
    return begin - _SLACK_PS, begin + (stop - start) * 1000 + _SLACK_PS


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

    def __init__(self, names: Mapping[int, str], events: EventStats, place: str) -> None:
        self._names = names
        self._events = events
        self._place = place
        self._ids: dict[str, list[int]] = defaultdict(list)
        for number, name in names.items():
            self._ids[name].append(number)
        self._columns: dict[str, StatColumn] = {}

    def only(self, kept: NDArray[np.int64]) -> _Stats:
        """Those of some events."""
        return _Stats(self._names, self._events.only(kept), self._place)

    def names(self) -> frozenset[str]:
        return frozenset(self._ids)

    def fetch(self, names: Sequence[str]) -> None:
        missing = [n for n in names if n in self._ids and n not in self._columns]
        with self._refusing():
            found = self._events.stats(each for name in missing for each in self._ids[name])
        for name in missing:
            first, *others = (found[each] for each in self._ids[name])
            for other in others:  # a name that was written under several ids
                first.kinds[other.present] = other.kinds[other.present]
                first.values[other.present] = other.values[other.present]
            self._columns[name] = first

    def release(self) -> None:
        self._columns.clear()

    def share(self, names: Sequence[str]) -> float:
        size = len(self._events)
        known = [each for name in names for each in self._ids.get(name, ())]
        if not size or not known:
            return 0.0
        # Evenly from all of them: a lane may begin with something else.
        sample = np.unique(np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64))
        with self._refusing():
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
            with self._refusing():
                codes[written] = codes_of_texts(self._events.buffer, at, ends, places)
            words = list(places)
        return TextColumn(codes, words)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """What is no message is refused under the file's name."""
        try:
            yield
        except WireError as error:
            raise _broken(error, self._place) from error

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
            yield signed(program), _giving(proto)


def _giving(content: bytes) -> Callable[[], bytes]:
    return lambda: content


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
