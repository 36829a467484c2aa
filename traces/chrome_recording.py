"""A Chrome trace, the JSON that JAX writes beside an XSpace, as a recording.

It has the same events under fewer digits, and at most about a million of them: the
XSpace is the better source wherever it is at hand.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.errors import InputError
from hloscope.traces.files import content_of
from hloscope.traces.recording import NONE, Lane, Recording, Section, TextColumn

__all__ = ["read_chrome_trace"]

_CAP = 1_000_000  # events from which on JAX leaves some out
_US = 1_000_000  # picoseconds of a microsecond
_LARGEST = 1 << 61
_BETWEEN = re.compile(r"[\s,]*")
_WHOLE = re.compile(r"-?[0-9]{1,19}")


def read_chrome_trace(path: Path) -> Recording:
    """Read ``.trace.json`` or ``.trace.json.gz``.

    Raises:
        InputError: It cannot be read, or is no Chrome trace.
    """
    document, cut = _document(path)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError(
            "this JSON has no list traceEvents",
            place=str(path),
            hint="Give a .trace.json.gz that jax.profiler.trace wrote, or better the .xplane.pb "
            "beside it.",
        )
    processes: dict[object, str] = {}
    threads: dict[tuple[object, object], str] = {}
    found: dict[tuple[object, object], list[_Event]] = defaultdict(list)
    dropped = 0
    for event in events:
        if not isinstance(event, dict):
            dropped += 1
            continue
        place = event.get("pid"), event.get("tid")
        if not all(isinstance(each, int | str | None) for each in place):
            dropped += 1
        elif event.get("ph") == "M":
            name = str(_args(event).get("name", ""))
            if event.get("name") == "process_name":
                processes[place[0]] = name
            elif event.get("name") == "thread_name":
                threads[place] = name
        elif event.get("ph") == "X":
            times = _times(event)
            if times is None or None in place:
                dropped += 1
            else:
                found[place].append((*times, str(event.get("name", "")), _args(event)))
    sections: dict[str, list[Lane]] = {name: [] for name in processes.values()}
    origin = min((begin for every in found.values() for begin, *_ in every), default=0)
    for place, every in found.items():
        name = threads.get(place, f"thread {place[1]}")
        number = place[1] if isinstance(place[1], int) else 0
        section = processes.get(place[0], f"process {place[0]}")
        sections.setdefault(section, []).append(_lane(name, number, every, origin))
    notes = ["read from the JSON beside an XSpace, which holds at most about a million events"]
    if sum(map(len, found.values())) >= _CAP:
        notes.append("it holds as many as that: events are missing, and totals are too low")
    if dropped:
        notes.append(f"{dropped:,} events without a place or a time: left out")
    return Recording(
        host=path.name.partition(".")[0],
        place=str(path),
        sections=tuple(Section(name, tuple(lanes), {}) for name, lanes in sections.items()),
        notes=tuple(notes),
        cut=cut,
    )


_Event = tuple[int, int, str, Mapping[str, Any]]


def _document(path: Path) -> tuple[Any, str]:
    """The JSON of a file; of a broken one its events up to there, and a sentence that says so."""
    content, cut = content_of(path)
    if not len(content):
        raise InputError(
            "the gzip file is cut off before its contents" if cut else "the file is empty",
            place=str(path),
            hint="Wait until the profiler has stopped and written it, or profile again.",
        )
    packed = content.tobytes()
    try:
        return json.loads(packed), "the gzip file is cut off behind its JSON" if cut else ""
    except (ValueError, RecursionError) as error:
        events, end = _events_before(packed.decode("utf-8", "replace"))
        if events:
            return events, (
                f"the JSON is cut off or broken behind character {end:,}: "
                f"{len(events):,} entries before that are read, what follows is missing"
            )
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(
            f"this is no JSON: {reason}",
            place=str(path),
            hint="Take the file again: it is cut off, or was still being written.",
        ) from error


def _events_before(text: str) -> tuple[list[Any], int]:
    """The events before the place where JSON is broken, and that place."""
    start = text.find('"traceEvents"')
    at = text.find("[", max(start, 0)) + 1
    decoder, events = json.JSONDecoder(), list[Any]()
    if start < 0 and text.lstrip()[:1] != "[":
        return events, 0
    while between := _BETWEEN.match(text, at):
        try:
            event, at = decoder.raw_decode(text, between.end())
        except (ValueError, RecursionError):
            break
        events.append(event)
    return events, at


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _times(event: Mapping[str, Any]) -> tuple[int, int] | None:
    """When an event begins and ends, in picoseconds; ``None`` of what is no time."""
    begin, length = event.get("ts"), event.get("dur", 0)
    if isinstance(begin, bool) or not isinstance(begin, int | float):
        return None
    if isinstance(length, bool) or not isinstance(length, int | float):
        return None
    # The comparison comes first: a whole number may be too large for a floating-point one.
    if not (abs(begin) < _LARGEST and 0 <= length < _LARGEST):
        return None
    start, duration = round(begin * _US), round(length * _US)
    return (start, start + duration) if abs(start) + duration < _LARGEST else None


def _lane(name: str, number: int, events: Sequence[_Event], origin: int) -> Lane:
    return Lane(
        name=name,
        id=number,
        begins=np.asarray([begin - origin for begin, *_ in events], np.int64),
        ends=np.asarray([end - origin for _, end, *_ in events], np.int64),
        labels=_text_column([label for _, _, label, _ in events]),
        about=lambda code: {},  # noqa: ARG005  (events say everything themselves)
        stats=_Stats([args for *_, args in events]),
    )


def _text_column(words: Sequence[str | None]) -> TextColumn:
    places: dict[str, int] = {}
    codes = [NONE if word is None else places.setdefault(word, len(places)) for word in words]
    return TextColumn(np.asarray(codes, np.int32), list(places))


class _Stats:
    """See ``hloscope.traces.recording.Stats``; the JSON has numbers as text."""

    def __init__(self, args: Sequence[Mapping[str, Any]]) -> None:
        self._args = args
        self._names = frozenset(name for each in args for name in each)

    def names(self) -> frozenset[str]:
        return self._names

    def fetch(self, names: Sequence[str]) -> None:
        """Everything is decoded already."""

    def release(self) -> None:
        """There is no other copy of it."""

    def share(self, names: Sequence[str]) -> float:
        having = sum(any(name in args for name in names) for args in self._args)
        return having / len(self._args) if self._args else 0.0

    def present(self, name: str) -> NDArray[np.bool_]:
        return np.asarray([name in args for args in self._args], np.bool_)

    def texts(self, name: str) -> TextColumn:
        values = [args.get(name) for args in self._args]
        return _text_column([value if isinstance(value, str) else None for value in values])

    def numbers(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        values = [_whole(args.get(name)) for args in self._args]
        known = np.asarray([value is not None for value in values], np.bool_)
        return np.asarray([value or 0 for value in values], np.int64), known


def _whole(value: object) -> int | None:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return value
    return None
