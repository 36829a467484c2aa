"""Devices that did what a list of events says, without a recording."""

import numpy as np
from hypothesis import strategies as st

from hloscope.chips import ChipKind
from hloscope.traces.categories import Categories
from hloscope.traces.kernel_names import Category
from hloscope.traces.recording import NONE, TextColumn
from hloscope.traces.timeline import Device
from hloscope.traces.work import Work

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
"""Beginning, duration and place in ``KINDS`` of each event."""


def device_doing(events, flying=()):
    """A device and the categories of what it did.

    Args:
        events: Its work.
        flying: What is in flight beside it.
    """
    work, beside, none = _work(events), _work(list(flying)), _work([])
    device = Device("host", ChipKind.TPU, 0, ("XLA Ops",), work, beside, none, none)
    return device, categories_of(events)


def categories_of(events):
    """What each of some events does."""
    codes = np.asarray([kind for *_, kind in events], np.int16)
    return Categories(KINDS, codes, np.zeros(len(events), np.bool_))


def _work(events):
    size = len(events)
    begins = np.asarray([begin for begin, _, _ in events], np.int64)
    none = TextColumn(np.full(size, NONE, np.int32), [])
    zeros = np.zeros(size, np.int64)
    return Work(
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
