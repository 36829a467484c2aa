"""Time of an event by itself, without what is nested in it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hloscope.traces.intervals import union
from hloscope.traces.self_time import self_times


def _self(*events):
    """Own times of (begin, end, lane)."""
    begins, ends, lanes = (np.asarray(column, np.int64) for column in zip(*events, strict=True))
    return self_times(begins, ends, lanes.astype(np.int16)).tolist()


def test_a_loop_keeps_what_its_body_leaves():
    assert _self((0, 100, 0), (10, 30, 0), (40, 90, 0), (50, 60, 0)) == [30, 20, 40, 10]


def test_other_lanes_take_nothing_away():
    assert _self((0, 100, 0), (10, 30, 1)) == [100, 20]


def test_a_child_that_ends_after_its_parent_counts_to_the_parents_end():
    assert _self((0, 10, 0), (5, 11, 0)) == [5, 6]


def test_what_only_touches_is_not_nested():
    assert _self((0, 10, 0), (10, 20, 0), (20, 20, 0)) == [10, 10, 0]


def test_twins_share_one_time():
    assert sorted(_self((0, 10, 0), (0, 10, 0))) == [0, 10]


def test_of_nothing_there_is_nothing():
    none = np.empty(0, np.int64)
    assert len(self_times(none, none, none.astype(np.int16))) == 0


@st.composite
def nests(draw):
    """Properly nested events on one lane."""
    events = []

    def fill(begin, end, depth):
        at = begin
        while at < end and len(events) < 30:
            at += draw(st.integers(0, 3))
            stop = min(at + draw(st.integers(1, 12)), end)
            if at >= stop:
                break
            events.append((at, stop, 0))
            if depth < 3 and draw(st.booleans()):
                fill(at, stop, depth + 1)
            at = stop

    fill(0, 60, 0)
    return draw(st.permutations(events))


@given(nests())
def test_own_times_add_up_to_the_time_in_which_anything_ran(events):
    if not events:
        return
    begins, ends = (np.asarray([event[n] for event in events], np.int64) for n in (0, 1))
    own = self_times(begins, ends, np.zeros(len(events), np.int16))
    assert own.min() >= 0
    assert own.sum() == union(begins, ends).total
