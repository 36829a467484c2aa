"""Columns of a window lose nothing and add nothing, however many there are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles.devices import EVENTS, device_doing

from hloscope.traces.exposure import parts_of
from hloscope.traces.timeline_bins import bins_of, edges_of
from hloscope.traces.windows import Window

SPLIT = ("compute", "exposed_communication", "exposed_copies", "control", "idle")
PARTS = (*SPLIT, "hidden_communication")


@given(EVENTS, st.integers(-5, 40), st.integers(0, 60), st.integers(1, 90), st.integers(1, 9))
def test_columns_add_up_to_the_parts_and_each_to_its_length(events, begin, length, columns, each):
    device, categories = device_doing(events)
    window = Window(begin, begin + length, "a window")
    parts = parts_of(device, categories, window)
    every = bins_of(device, categories, window, columns)
    for bins in (every, every.merged(each)):
        for name in PARTS:
            assert getattr(bins, name).sum() == getattr(parts, name)
            assert (getattr(bins, name) >= 0).all()
        summed = sum(getattr(bins, name) for name in SPLIT)
        np.testing.assert_array_equal(summed, np.diff(bins.edges))
        assert (bins.edges[0], bins.edges[-1]) == (window.begin, window.end)
        assert (bins.hidden_communication <= bins.compute).all()


@given(EVENTS, st.integers(-5, 40), st.integers(1, 60))
def test_a_column_of_each_moment_is_what_happened_in_it(events, begin, length):
    device, categories = device_doing(events)
    bins = bins_of(device, categories, Window(begin, begin + length, "a window"), length)
    assert len(bins) == length
    for place in range(length):
        moment = Window(begin + place, begin + place + 1, "a moment")
        parts = parts_of(device, categories, moment)
        assert [getattr(bins, name)[place] for name in PARTS] == [
            getattr(parts, name) for name in PARTS
        ]


@given(st.integers(-(2**40), 2**40), st.integers(0, 2**61), st.integers(1, 2000))
def test_columns_are_equally_long_to_a_picosecond_even_of_long_windows(begin, length, columns):
    edges = edges_of(Window(begin, begin + length, "a window"), columns)
    assert (edges[0], edges[-1]) == (begin, begin + length)
    lengths = np.diff(edges)
    assert len(lengths) == max(min(columns, length), 1)
    assert lengths.max() - lengths.min() <= 1


def test_communication_is_told_apart_by_whether_anything_is_computed_then():
    # A product from 0 to 10, an all-reduce from 5 to 20, a copy from 15 to 30.
    device, categories = device_doing([(0, 10, 0), (5, 15, 2), (15, 15, 4)])
    bins = bins_of(device, categories, Window(0, 40, "all"), 4)
    assert bins.compute.tolist() == [10, 0, 0, 0]
    assert bins.hidden_communication.tolist() == [5, 0, 0, 0]
    assert bins.exposed_communication.tolist() == [0, 10, 0, 0]
    assert bins.exposed_copies.tolist() == [0, 0, 10, 0]
    assert bins.idle.tolist() == [0, 0, 0, 10]
