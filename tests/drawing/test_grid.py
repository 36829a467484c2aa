"""Rows of lanes."""

from hypothesis import given
from hypothesis import strategies as st

from hloscope.drawing.grid import place_rows


def test_a_node_is_no_higher_than_what_it_reads_from_another_lane():
    rows = place_rows([["a", "b"], ["k"], []], [("a", "b"), ("b", "k")], upward=2)
    assert rows == {"a": 0, "b": 1, "k": 1}


def test_the_last_lane_runs_from_the_bottom_up_level_with_what_it_reads():
    rows = place_rows([["a", "b", "c"], ["x", "y"]], [("c", "x"), ("a", "y")], upward=1)
    assert rows["x"] == rows["c"]
    assert rows["y"] == rows["a"]


NODES = st.lists(st.integers(0, 3), min_size=1, max_size=20)


@given(NODES, st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=30))
def test_no_two_nodes_of_a_lane_share_a_row_and_all_keep_their_order(lane_of, pairs):
    lanes = [[n for n, lane in enumerate(lane_of) if lane == number] for number in range(4)]
    edges = [(a, b) for a, b in pairs if a < len(lane_of) and b < len(lane_of) and a != b]
    rows = place_rows(lanes, edges, upward=3)
    assert set(rows) == set(range(len(lane_of)))
    assert min(rows.values()) >= 0
    for lane in lanes[:3]:
        assert [rows[n] for n in lane] == sorted({rows[n] for n in lane})
    assert [rows[n] for n in lanes[3]] == sorted({rows[n] for n in lanes[3]}, reverse=True)
