"""Distinct numbers and rows, against sorting; sums by place, against adding one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.traces import codes
from hloscope.traces.codes import counts_by, distinct, places_of, whole_sums

NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(1 << 62), 1 << 62))


@given(st.lists(NUMBERS, max_size=30))
def test_every_number_has_its_place_among_the_distinct_ones(numbers):
    places, known = places_of(np.asarray(numbers, np.int64))
    assert known.tolist() == sorted(set(numbers))
    assert [known.tolist()[place] for place in places.tolist()] == numbers


@given(st.lists(st.tuples(NUMBERS, st.integers(-1, 4), st.integers(0, 2)), max_size=30))
def test_every_row_has_its_place_among_the_distinct_ones(rows):
    columns = [np.asarray([row[n] for row in rows], np.int64) for n in range(3)]
    places, known = distinct(columns)
    assert sorted(known) == sorted(set(rows))
    assert [known[place] for place in places.tolist()] == rows


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 1 << 61)), max_size=20))
def test_times_and_numbers_are_added_up_by_place_exactly(chunk, rows):
    places = np.asarray([place for place, _ in rows], np.int16)
    times = np.asarray([time for _, time in rows], np.int64)
    odd = times % 2 == 1
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codes, "_CHUNK", chunk)
        sums, counts = whole_sums(places, times, 4), counts_by(places, 4)
        odds = counts_by(places, 4, odd)
    assert sums == [sum(time for each, time in rows if each == place) for place in range(4)]
    assert counts == [sum(each == place for each, _ in rows) for place in range(4)]
    assert odds == [sum(each == place and time % 2 for each, time in rows) for place in range(4)]
