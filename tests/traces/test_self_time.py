"""Time of an event by itself, without what is nested in it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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


# Events of a lane as a tree: how long each waits, how long it runs by itself, its children.
TREES = st.recursive(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.just([])),
    lambda inner: st.tuples(st.integers(0, 3), st.integers(1, 4), st.lists(inner, max_size=3)),
    max_leaves=6,
)


def _placed(trees, at=0):
    """When each event begins and ends, and its own time; and where the last one ends."""
    rows = []
    for before, own, children in trees:
        begin = at + before
        inside, end = _placed(children, begin + own)
        covered = sum(last - first for first, last, depth, _ in inside if depth == 0)
        rows.append((begin, end, 0, end - begin - covered))
        rows += [(first, last, depth + 1, mine) for first, last, depth, mine in inside]
        at = end
    return rows, at


@given(st.lists(st.lists(TREES, max_size=4), min_size=1, max_size=3), st.randoms())
def test_children_are_subtracted_from_their_parents_on_every_lane(lanes, random):
    rows = [(lane, *row) for lane, trees in enumerate(lanes) for row in _placed(trees)[0]]
    for _ in range(2):
        columns = np.asarray(rows, np.int64).reshape(-1, 5).T
        lane, begins, ends, _, own = columns
        assert self_times(begins, ends, lane.astype(np.int16)).tolist() == own.tolist()
        random.shuffle(rows)
