"""The parts of a window add up to it, whatever runs beside whatever."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hloscope.chips import ChipKind
from hloscope.traces.categories import Categories
from hloscope.traces.exposure import parts_of
from hloscope.traces.kernel_names import Category
from hloscope.traces.recording import NONE, TextColumn
from hloscope.traces.timeline import Device, Work
from hloscope.traces.windows import Window

KINDS = (
    Category.GEMM,
    Category.ELEMENTWISE,
    Category.ALL_REDUCE,
    Category.ALL_GATHER,
    Category.HOST_TO_DEVICE,
    Category.CONTROL,
)
EVENTS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, len(KINDS) - 1)), max_size=20
)


def _device(events):
    size = len(events)
    begins = np.asarray([begin for begin, _, _ in events], np.int64)
    none = TextColumn(np.full(size, NONE, np.int32), [])
    zeros = np.zeros(size, np.int64)
    work = Work(
        begins=begins,
        ends=begins + np.asarray([length for _, length, _ in events], np.int64),
        lane=np.zeros(size, np.int16),
        labels=TextColumn(np.zeros(size, np.int32), ["kernel"]),
        operations=none,
        modules=none,
        programs=zeros,
        correlations=zeros,
        runs=zeros,
        graphs=zeros,
        hints=none,
    )
    device = Device("host", ChipKind.GPU, 0, ("Stream #1",), work, work, work, work)
    codes = np.asarray([kind for *_, kind in events], np.int16)
    return device, Categories(KINDS, codes, np.zeros(size, np.bool_))


def _moments(events, kinds):
    return {
        moment
        for begin, length, kind in events
        if KINDS[kind] in kinds
        for moment in range(begin, begin + length)
    }


@given(EVENTS, st.integers(-5, 40), st.integers(0, 60))
def test_the_parts_are_those_of_single_moments_and_sum_to_the_window(events, begin, length):
    device, categories = _device(events)
    window = Window(begin, begin + length, "a window")
    parts = parts_of(device, categories, window)
    inside = set(range(begin, begin + length))
    compute = _moments(events, {Category.GEMM, Category.ELEMENTWISE}) & inside
    exchange = _moments(events, {Category.ALL_REDUCE, Category.ALL_GATHER}) & inside
    copies = _moments(events, {Category.HOST_TO_DEVICE}) & inside
    control = _moments(events, {Category.CONTROL}) & inside
    assert parts.compute == len(compute)
    assert parts.exposed_communication == len(exchange - compute)
    assert parts.hidden_communication == len(exchange & compute)
    assert parts.exposed_copies == len(copies - exchange - compute)
    assert parts.control == len(control - copies - exchange - compute)
    assert parts.idle == len(inside - compute - exchange - copies - control)
    split = (
        parts.compute,
        parts.exposed_communication,
        parts.exposed_copies,
        parts.control,
        parts.idle,
    )
    assert sum(split) == window.length
    assert parts.busy + parts.idle == window.length


def test_each_kind_of_communication_has_what_is_hidden_behind_compute():
    # A product from 0 to 10, an all-reduce from 5 to 20, an all-gather from 18 to 30.
    events = [(0, 10, 0), (5, 15, 2), (18, 12, 3)]
    parts = parts_of(*_device(events), Window(0, 40, "all"))
    gather, reduce = parts.exchanges
    assert (gather.category, gather.time, gather.exposed, gather.hidden) == (
        "all-gather",
        12,
        12,
        0,
    )
    assert (reduce.category, reduce.time, reduce.exposed, reduce.hidden) == (
        "all-reduce",
        15,
        10,
        5,
    )
    # Both together are exposed from 10 to 30.
    assert parts.exposed_communication == 20
    assert (parts.compute, parts.idle) == (10, 10)
