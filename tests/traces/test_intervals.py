"""Interval arithmetic against sets of moments: every picosecond is in what it should be in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.traces import intervals
from hloscope.traces.intervals import EMPTY, union, union_of

PAIRS = st.lists(st.tuples(st.integers(-20, 60), st.integers(-5, 30)), max_size=12)


def _intervals(pairs):
    begins = np.asarray([begin for begin, _ in pairs], np.int64)
    return union(begins, begins + np.asarray([length for _, length in pairs], np.int64))


def _moments(pairs):
    return {m for begin, length in pairs for m in range(begin, begin + length)}


def _of(intervals):
    assert (intervals.begins < intervals.ends).all()
    assert (intervals.ends[:-1] < intervals.begins[1:]).all()
    return {
        m
        for b, e in zip(intervals.begins.tolist(), intervals.ends.tolist(), strict=True)
        for m in range(b, e)
    }


@given(PAIRS)
def test_a_union_holds_every_moment_once(pairs):
    assert _of(_intervals(pairs)) == _moments(pairs)
    assert _intervals(pairs).total == len(_moments(pairs))


@given(st.lists(PAIRS, min_size=1, max_size=4), st.randoms())
def test_lanes_that_are_each_in_order_are_merged_span_by_span(lanes, random):
    pairs = [pair for lane in lanes for pair in sorted(lane)]
    begins = np.asarray([begin for begin, _ in pairs], np.int64)
    ends = begins + np.asarray([length for _, length in pairs], np.int64)
    chosen = np.asarray([random.random() < 0.7 for _ in pairs], np.bool_)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(intervals, "_CHUNK", 2)  # as if they were many
        merged, some = union(begins, ends), union(begins, ends, chosen)
    assert _of(merged) == _moments(pairs)
    assert _of(some) == _moments([pair for pair, kept in zip(pairs, chosen, strict=True) if kept])


@given(PAIRS, PAIRS)
def test_two_sets_of_intervals_are_joined_met_and_subtracted_like_sets(one, other):
    left, right = _intervals(one), _intervals(other)
    assert _of(left | right) == _moments(one) | _moments(other)
    assert _of(left & right) == _moments(one) & _moments(other)
    assert _of(left - right) == _moments(one) - _moments(other)
    assert union_of([left, right]) == left | right


@given(PAIRS, st.integers(-30, 80), st.integers(0, 60))
def test_what_is_in_a_window_and_what_is_not_are_the_window(pairs, begin, length):
    intervals, end = _intervals(pairs), begin + length
    inside, gaps = intervals.within(begin, end), intervals.gaps(begin, end)
    assert _of(inside) | _of(gaps) == set(range(begin, end))
    assert inside.total + gaps.total == length


@given(PAIRS, PAIRS)
def test_how_much_of_each_window_is_covered(pairs, windows):
    begins = np.asarray([begin for begin, _ in windows], np.int64)
    ends = begins + np.asarray([abs(length) for _, length in windows], np.int64)
    covered = _intervals(pairs).covered(begins, ends)
    wanted = [
        len(_moments(pairs) & set(range(b, e)))
        for b, e in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    assert covered.tolist() == wanted


def test_nothing_has_no_span_and_no_time():
    assert EMPTY.span is None
    assert EMPTY.total == 0
    assert union_of([]) == EMPTY
    assert EMPTY.gaps(3, 7).span == (3, 7)


def test_nested_kernels_count_once():
    # The published mistake: 10 + 4 + 4 of 10 is 180% busy.
    busy = union(np.asarray([0, 1, 6], np.int64), np.asarray([10, 5, 10], np.int64))
    assert busy.total == 10


def test_the_longest_are_kept_in_their_order():
    every = union(np.asarray([0, 10, 20, 30]), np.asarray([3, 11, 25, 32]))
    assert every.longest(2) == union(np.asarray([0, 20]), np.asarray([3, 25]))
    assert every.longest(4) is every
