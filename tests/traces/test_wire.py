"""Millions of messages as columns, against one message at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.xspaces import message, number, varint

from hloscope.traces import wire

PAD = bytes(16)


def _buffer(content):
    return np.frombuffer(content + PAD, np.uint8)


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=30))
def test_varints_of_every_length_are_decoded_where_they_stand(values):
    content = b"".join(map(varint, values))
    ends = np.cumsum([len(varint(value)) for value in values])
    buffer = _buffer(content)
    starts = np.append(0, ends[:-1])
    found, behind = wire.varints_at(wire.words_of(buffer), starts, buffer)
    assert found.tolist() == values
    assert behind.tolist() == ends.tolist()


def _plainly(content, field):
    """Where each message of a field begins and ends, and where another field stands."""
    view = memoryview(content)
    begins, ends = [], []
    for each in wire.fields(view, 0, len(content)):
        if each.number != field:
            return begins, ends, ends[-1] if ends else 0
        begins.append(each.value)
        ends.append(each.end)
    return begins, ends, len(content)


# Bytes that look like tags of the same field, so that guesses go wrong.
BODIES = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=40).map(lambda inner: message(4, inner) * 3),
    st.integers(0, 300).map(lambda size: b"\x22" * size),
)


@settings(deadline=None)
@given(st.lists(BODIES, min_size=1, max_size=12), st.integers(1, 2000), st.booleans())
def test_messages_in_a_row_are_found_as_one_by_one(bodies, times, then_another):
    content = b"".join(message(4, body) for body in bodies) * times
    row = len(content)
    content += number(9, 5) if then_another else b""
    begins, ends, stop = wire.split_repeated(_buffer(content), 0, len(content), 4)
    wanted = _plainly(content, 4)
    assert (begins.tolist(), ends.tolist()) == wanted[:2]
    assert stop == row


def test_a_row_that_is_cut_off_is_refused():
    content = message(4, b"abc") * 100_000
    for cut in (1, 2, 4):
        with pytest.raises(wire.WireError, match=r"bytes in|without an end"):
            wire.split_repeated(_buffer(content[:-cut]), 0, len(content) - cut, 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x08", "a number without an end"),
        (b"\x08" + b"\xff" * 10, "a number without an end"),
        (b"\x0a\x05ab", "a field of 5 bytes in 2"),
        (b"\x09\x01", "a field of 8 bytes in 1"),
        (b"\x0b", "a field of type 3, which does not exist"),
        (b"\x00\x01", "a field of number 0"),
    ],
)
def test_broken_bytes_say_what_is_wrong_and_where(content, said):
    with pytest.raises(wire.WireError, match=said):
        list(wire.fields(memoryview(content), 0, len(content)))
