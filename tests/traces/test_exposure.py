"""The parts of a window add up to it, whatever runs beside whatever."""

from hypothesis import given
from hypothesis import strategies as st
from oracles.devices import EVENTS, KINDS, categories_of, device_doing

from hloscope.traces.exposure import parts_of
from hloscope.traces.kernel_names import Category
from hloscope.traces.windows import Window


def _moments(events, kinds):
    return {
        moment
        for begin, length, kind in events
        if KINDS[kind] in kinds
        for moment in range(begin, begin + length)
    }


@given(EVENTS, EVENTS, st.integers(-5, 40), st.integers(0, 60))
def test_the_parts_are_those_of_single_moments_and_sum_to_the_window(events, flying, begin, length):
    device, categories = device_doing(events, flying)
    window = Window(begin, begin + length, "a window")
    parts = parts_of(device, categories, window, categories_of(flying))
    inside = set(range(begin, begin + length))
    collectives, copied = {Category.ALL_REDUCE, Category.ALL_GATHER}, {Category.HOST_TO_DEVICE}
    compute = _moments(events, {Category.GEMM, Category.ELEMENTWISE}) & inside
    exchange = _moments([*events, *flying], collectives) & inside
    copies = _moments([*events, *flying], copied) & inside
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
    for exchanged in parts.exchanges:
        number = KINDS.index(exchanged.category)
        mine = _moments([*events, *flying], {exchanged.category}) & inside
        assert exchanged.time == len(mine)
        assert exchanged.exposed == len(mine - compute)
        assert any(kind == number for *_, kind in [*events, *flying])
    # Names are all alike here, so that an exchange is a category.
    assert {(row.key.category, row.time, row.exposed) for row in parts.collectives} == {
        (row.category, row.time, row.exposed) for row in parts.exchanges
    }


def test_each_kind_of_communication_has_what_is_hidden_behind_compute():
    # A product from 0 to 10, an all-reduce from 5 to 20, an all-gather from 18 to 30.
    events = [(0, 10, 0), (5, 15, 2), (18, 12, 3)]
    parts = parts_of(*device_doing(events), Window(0, 40, "all"))
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
