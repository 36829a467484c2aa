"""A thread's time is split without rest, by the innermost event that says what it is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hloscope.traces.host_kinds import KINDS, HostKind
from hloscope.traces.host_threads import HostThread
from hloscope.traces.host_timeline import innermost, timeline_of
from hloscope.traces.intervals import union
from hloscope.traces.recording import TextColumn

# Of each of these kinds an event's name, whether Python's tracer recorded it, and what it is.
NAMES = (
    ("PjitFunction(step)", HostKind.DISPATCH),
    ("CommonPjRtLoadedExecutable::Execute", HostKind.LAUNCH),
    ("np.asarray(jax.Array)", HostKind.TRANSFER),
    ("$api.py:1 block_until_ready", HostKind.DEVICE_WAIT),
    ("$train.py:1 main", None),
    ("MemoryAllocation", None),
)


def _thread(events):
    """Events are begin, end and the place of a name."""
    events = sorted(events, key=lambda event: (event[0], -event[1]))
    places = {kind: place for place, kind in enumerate(KINDS)}
    kinds = [-1 if kind is None else places[kind] for _, kind in NAMES]
    codes = np.asarray([code for *_, code in events], np.int32)
    return HostThread(
        "python",
        "it is asked for",
        np.asarray([begin for begin, *_ in events], np.int64),
        np.asarray([end for _, end, _ in events], np.int64),
        TextColumn(codes, [name for name, _ in NAMES]),
        np.asarray(kinds, np.int8)[codes],
        np.asarray([name.startswith("$") for name, _ in NAMES], np.bool_)[codes],
        np.zeros(len(events), np.bool_),
        None,
    )


@st.composite
def nested(draw, low=0, high=40, depth=0):
    """Events on one thread: each ends before the one around it."""
    events, at = [], low
    for _ in range(draw(st.integers(0, 3)) if depth < 4 else 0):
        begin = draw(st.integers(at, high))
        end = draw(st.integers(begin, high))
        if begin < end:
            events.append((begin, end, draw(st.integers(0, len(NAMES) - 1))))
            events += draw(nested(begin, end, depth + 1))
            at = end
    return events


BUSY = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=4)


def _expected(events, busy, moment):
    """What a thread does in one moment, from all events that are open then, outer ones first."""
    opened = sorted(
        (event for event in events if event[0] <= moment < event[1]),
        key=lambda event: (event[0], -event[1]),
    )
    kinds = [NAMES[code][1] for *_, code in opened]
    known = [kind for kind in kinds if kind is not None]
    if known:
        fetching = known[-1] is HostKind.TRANSFER and moment in busy
        return HostKind.DEVICE_WAIT if fetching else known[-1]
    if any(NAMES[code][0].startswith("$") for *_, code in opened):
        return HostKind.PYTHON
    return HostKind.NATIVE if opened else HostKind.UNTRACED


@given(nested(), BUSY, st.integers(0, 40), st.integers(0, 40))
def test_each_moment_is_what_the_innermost_event_says(events, busy, begin, length):
    working = union(
        np.asarray([at for at, _ in busy], np.int64),
        np.asarray([at + size for at, size in busy], np.int64),
    )
    moments = {moment for at, size in busy for moment in range(at, at + size)}
    timeline = timeline_of(_thread(events), working)
    parts = timeline.split(np.asarray([begin]), np.asarray([begin + length]))
    wanted = [_expected(events, moments, moment) for moment in range(begin, begin + length)]
    for kind, times in parts.items():
        assert int(times[0]) == wanted.count(kind), kind
    assert sum(int(times[0]) for times in parts.values()) == length


ANY = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(0, len(NAMES) - 1)), max_size=12
)


@given(ANY, st.integers(-5, 40), st.integers(0, 60))
def test_the_parts_add_up_whatever_overlaps_whatever(events, begin, length):
    shifted = [(at, at + size, code) for at, size, code in events]
    timeline = timeline_of(_thread(shifted), union(np.asarray([5]), np.asarray([25])))
    parts = timeline.split(np.asarray([begin]), np.asarray([begin + length]))
    assert sum(int(times[0]) for times in parts.values()) == length
    assert all(int(times[0]) >= 0 for times in parts.values())


def test_the_innermost_of_three_that_begin_or_end_together():
    begins, ends = np.asarray([0, 0, 4]), np.asarray([10, 4, 10])
    times, owners = innermost(begins, ends)
    found = {
        (int(a), int(b)): int(owner)
        for a, b, owner in zip(times, times[1:], owners, strict=False)
        if a < b
    }
    assert found == {(0, 4): 1, (4, 10): 2}


def test_a_callback_keeps_what_happens_within_it():
    names = ["pure_callback.1", "DevicePut"]
    thread = HostThread(
        "python",
        "",
        np.asarray([0, 2]),
        np.asarray([10, 5]),
        TextColumn(np.asarray([0, 1], np.int32), names),
        np.asarray([KINDS.index(HostKind.CALLBACK), KINDS.index(HostKind.PLACEMENT)], np.int8),
        np.zeros(2, np.bool_),
        np.zeros(2, np.bool_),
        None,
    )
    timeline = timeline_of(thread, union(np.asarray([0]), np.asarray([1])))
    assert {kind: each.total for kind, each in timeline.kinds.items()} == {HostKind.CALLBACK: 10}
