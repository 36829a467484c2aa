"""Events that are laid out alike, against one event at a time."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.xspaces import message, number, varint

from hloscope.traces import events, wire

PAD = bytes(64)
KINDS = events.StatKind

VALUES = st.one_of(
    st.integers(0, (1 << 64) - 1).map(lambda value: number(3, value)),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda value: number(4, value)),
    st.integers(0, 70_000).map(lambda value: number(7, value)),
    st.floats(allow_nan=False).map(lambda value: varint(2 << 3 | 1) + struct.pack("<d", value)),
    st.binary(max_size=3).map(lambda value: message(5, value)),
    st.binary(max_size=200).map(lambda value: message(6, value)),
    st.just(b""),
)
IDS = st.sampled_from([1, 2, 3, 127, 128, 300, 70_000])
STATS = st.tuples(IDS, VALUES).map(lambda stat: message(4, number(1, stat[0]) + stat[1]))
UNUSUAL = st.tuples(IDS, VALUES).map(lambda stat: message(4, stat[1] + number(1, stat[0])))
LATER = st.just(number(9, 5) + message(77, b"later"))
HEADS = st.tuples(
    st.integers(1, 1 << 40), st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 62)
).map(lambda head: number(1, head[0]) + number(2, head[1]) + number(3, head[2]))
TURNED = st.integers(1, 300).map(lambda head: number(3, 7) + number(2, head) + number(1, head))
EVENTS = st.tuples(
    st.one_of(HEADS, HEADS, TURNED),
    st.lists(st.one_of(STATS, STATS, STATS, UNUSUAL, LATER), max_size=4),
).map(lambda event: event[0] + b"".join(event[1]))


def _written(every):
    """The events as one line has them: the buffer, and where each begins and ends."""
    content = b"".join(message(4, each) for each in every)
    buffer = np.frombuffer(content + PAD, np.uint8)
    begins, ends, stop = wire.split_repeated(buffer, 0, len(content), 4)
    assert stop == len(content)
    return buffer, begins, ends


def _plainly(event):
    """An event's three numbers, and its stats by id: kind and bits, of texts the content."""
    view, numbers, stats = memoryview(event), {1: 0, 2: 0, 3: 0}, {}
    for field in wire.fields(view, 0, len(event)):
        if field.number in numbers:
            numbers[field.number] = field.value
        elif field.number == 4:
            which, value = 0, None
            for part in wire.fields(view, field.value, field.end):
                if part.number == 1:
                    which = part.value
                else:
                    text = part.wire == wire.LENGTH
                    said = bytes(view[part.value : part.end]) if text else part.value
                    value = part.number, said
            if value is not None:
                stats[which] = value
    return tuple(numbers.values()), stats


def _decoded(buffer, columns, row):
    found = {}
    for which, column in columns.items():
        kind, value = int(column.kinds[row]), int(column.values[row])
        if kind in (KINDS.STRING, KINDS.BYTES):
            size, begin = wire.read_varint(buffer, value, len(buffer))
            found[which] = kind, buffer[begin : begin + size].tobytes()
        elif kind:
            found[which] = kind, value
    return found


@pytest.fixture
def of_any_number(monkeypatch):
    """However few events there are, they are decoded side by side."""
    monkeypatch.setattr(events, "_FEWEST", 1)


@pytest.mark.usefixtures("of_any_number")
@settings(deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=12))
def test_events_of_a_few_layouts_are_decoded_as_one_by_one(kinds, order):
    every = kinds + [kinds[place % len(kinds)] for place in order]
    buffer, begins, ends = _written(every)
    found = events.decode_events(buffer, begins, ends)
    wanted = [1, 3, 128, 70_000]
    columns = found.stats(wanted)
    for row, event in enumerate(every):
        numbers, stats = _plainly(event)
        mine = found.metadata[row], found.offset_ps[row], found.duration_ps[row]
        assert tuple(map(int, mine)) == numbers
        expected = {which: value for which, value in stats.items() if which in wanted}
        assert _decoded(buffer, columns, row) == expected


def test_many_events_of_one_layout_and_a_few_others_keep_their_places():
    usual = [
        number(1, 1 + n % 200) + number(2, n * 1000) + number(3, 500)
        + message(4, number(1, 2) + number(3, n)) + message(4, number(1, 3) + number(7, n % 90))
        for n in range(70_000)
    ]  # fmt: skip
    other = number(1, 9) + number(2, 5) + message(4, number(3, 42) + number(1, 2))
    usual[40_000] = usual[-1] = other
    buffer, begins, ends = _written(usual)
    found = events.decode_events(buffer, begins, ends)
    columns = found.stats([2, 3])
    values, known = columns[2].numbers()
    assert known.all()
    wanted = np.arange(70_000)
    wanted[[40_000, -1]] = 42
    np.testing.assert_array_equal(values, wanted)
    assert np.flatnonzero(~columns[3].present).tolist() == [40_000, 69_999]
    assert (columns[3].values[:40_000] == np.arange(40_000) % 90).all()
    assert found.duration_ps[[0, 40_000, -1]].tolist() == [500, 0, 0]


def test_a_stat_that_reaches_beyond_its_event_is_refused_wherever_it_stands():
    good = number(1, 1) + number(2, 8) + message(4, number(1, 2) + number(3, 5))
    broken = number(1, 1) + number(2, 8) + b"\x22\x09\x08\x02\x18\x05"
    buffer, begins, ends = _written([good] * 20 + [broken] + [good] * 20)
    with pytest.raises(wire.WireError, match="beyond its event"):
        events.decode_events(buffer, begins, ends).stats([2])
