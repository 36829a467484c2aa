"""Texts that events write out, against reading each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.xspaces import varint

from hloscope.traces import written_texts
from hloscope.traces.wire import WireError
from hloscope.traces.written_texts import codes_of_texts

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["x" * 8, "x" * 7 + "y", "é" * 300, "fusion.1", "fusion.2", ""]),
).map(str.encode) | st.binary(max_size=9)


def _written(texts, pad=64):
    """The buffer, where each text's length stands, and where it ends."""
    content = b"".join(varint(len(text)) + text for text in texts)
    ends = np.cumsum([len(varint(len(text))) + len(text) for text in texts])
    begins = np.append(0, ends[:-1])
    return np.frombuffer(content + bytes(pad), np.uint8), begins, ends


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=30), st.sampled_from([8, 64]))
def test_every_text_has_its_place_among_all_of_them(texts, pad):
    places = {"known before": 0, "fusion.2": 1}
    codes = codes_of_texts(*_written(texts, pad), places)
    words = list(places)
    assert list(places.values()) == list(range(len(words)))
    assert [words[code] for code in codes.tolist()] == [
        text.decode("utf-8", "replace") for text in texts
    ]


def test_texts_that_are_mixed_into_one_number_are_told_apart(monkeypatch):
    monkeypatch.setattr(written_texts, "_MIXER", np.uint64(0))
    texts = [b"first---" + b"12345678", b"second--" + b"12345678"] * 3
    places = {}
    codes = codes_of_texts(*_written(texts), places)
    assert codes.tolist() == [0, 1] * 3
    assert list(places) == ["first---12345678", "second--12345678"]


def test_a_text_that_reaches_beyond_its_event_is_refused():
    buffer, begins, ends = _written([b"good", b"cut off"])
    with pytest.raises(WireError, match="a text that reaches beyond its event"):
        codes_of_texts(buffer, begins, ends - np.asarray([0, 1]), {})
    with pytest.raises(WireError, match="a text that reaches beyond its event"):
        codes_of_texts(buffer, begins, begins, {})
