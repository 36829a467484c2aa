"""Distinct numbers and rows, against sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hloscope.traces.codes import distinct, places_of

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
