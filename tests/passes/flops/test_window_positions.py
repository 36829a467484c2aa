"""Counting by closed forms against counting one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.ir.attributes import WindowDimension
from hloscope.passes.flops.window_positions import valid_positions


def one_by_one(size: int, outputs: int, w: WindowDimension) -> int:
    spread = (size - 1) * w.base_dilation + 1
    count = 0
    for o in range(outputs):
        for tap in range(w.size):
            x = o * w.stride + tap * w.window_dilation - w.padding_low
            count += 0 <= x < spread and x % w.base_dilation == 0
    return count


@given(
    size=st.integers(1, 20),
    outputs=st.integers(1, 24),
    window=st.builds(
        WindowDimension,
        size=st.integers(1, 24),
        stride=st.integers(1, 7),
        padding_low=st.integers(-6, 12),
        window_dilation=st.integers(1, 5),
        base_dilation=st.integers(1, 9),
        reversal=st.booleans(),
    ),
)
def test_every_way_of_counting_agrees_with_counting_one_by_one(size, outputs, window):
    assert valid_positions(size, outputs, window) == one_by_one(size, outputs, window)


def test_same_padding_leaves_out_the_border():
    # 3 taps over 8 positions make 24; one falls outside at either end.
    assert valid_positions(8, 8, WindowDimension(3, padding_low=1, padding_high=1)) == 22


def test_a_dilated_base_is_met_once_by_every_output():
    # Output o of 16 lies at 15*o; only tap o falls on one of the multiples of 16.
    batch = WindowDimension(16, stride=15, base_dilation=16)
    assert valid_positions(16, 16, batch) == 16


def test_a_window_over_a_million_positions_is_counted_at_once():
    n = 1_000_000
    # The k-th output meets k + 1 elements: 1 + 2 + ... + n.
    window = WindowDimension(n, padding_low=n - 1)
    assert valid_positions(n, n, window) == n * (n + 1) // 2


def test_an_empty_input_meets_nothing():
    assert valid_positions(0, 8, WindowDimension(3)) == 0


def test_a_window_that_no_method_can_count_in_time_is_refused():
    huge = 10**12
    window = WindowDimension(huge, stride=3, base_dilation=huge)
    with pytest.raises(ValueError, match="too large"):
        valid_positions(5, huge, window)


def test_a_stride_of_nothing_is_refused():
    with pytest.raises(ValueError, match="below one"):
        valid_positions(5, 5, WindowDimension(3, stride=0))
