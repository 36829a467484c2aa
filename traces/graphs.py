"""CUDA graphs: one event for a whole graph, beside those of its nodes or instead of them.

A tracer tells of every kernel of a graph, of the graph as a whole, or of both. The graph
as a whole lasts as long as what ran in it, so that with both each kernel counts twice.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.codes import places_of
from hloscope.traces.recording import TextColumn

__all__ = ["DETAILS", "covered_graphs", "is_whole_graph"]

DETAILS = ("kernel_details", "memcpy_details", "memset_details", "Memset_details")
"""Stats that a kernel or a copy has, and a graph as a whole has not."""

_WHOLE = re.compile(r"cuda_?graph", re.IGNORECASE)


def is_whole_graph(label: str) -> bool:
    """Whether an event of that name is of a graph as a whole: ``CudaGraphExec:7``."""
    return _WHOLE.match(label) is not None


def covered_graphs(
    labels: TextColumn,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    graphs: NDArray[np.int64],
    correlations: NDArray[np.int64],
    detailed: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], int]:
    """Which events are of a whole graph whose nodes are recorded within it.

    A node is of the graph where it has its number, or the correlation of its launch.

    Args:
        labels: What each event is called.
        begins: When each begins.
        ends: When each ends.
        graphs: The graph that launched each, 0 for none.
        correlations: What ties each to its launch, 0 where none is said.
        detailed: Which of them say what a kernel or a copy says.

    Returns:
        Those, and the number of whole graphs without any node.
    """
    named = np.asarray([is_whole_graph(word) for word in labels.words], np.bool_)
    called = named[labels.codes] if len(named) else np.zeros(len(begins), np.bool_)
    whole = called | ((graphs != 0) & ~detailed)
    covered = np.zeros(len(begins), np.bool_)
    for keys in (graphs, correlations):
        _cover(covered, whole, keys, begins, ends)
    return covered, int(np.count_nonzero(called & ~covered))


def _cover(
    covered: NDArray[np.bool_],
    whole: NDArray[np.bool_],
    keys: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    """Mark the whole graphs within which an event of the same key begins."""
    open_ = np.flatnonzero(whole & ~covered & (keys != 0))
    nodes = np.flatnonzero(~whole & (keys != 0))
    if not len(open_) or not len(nodes):
        return
    places, _ = places_of(np.concatenate((keys[open_], keys[nodes])))
    mine, theirs = places[: len(open_)], places[len(open_) :]
    # Both in the order of key and time: of each key the nodes are one run.
    order = np.lexsort((begins[nodes], theirs))
    theirs, starts = theirs[order], begins[nodes][order]
    first = np.searchsorted(theirs, mine, "left")
    last = np.searchsorted(theirs, mine, "right")
    for event, a, b in zip(open_.tolist(), first.tolist(), last.tolist(), strict=True):
        if a < b:
            at = a + int(np.searchsorted(starts[a:b], begins[event], "left"))
            covered[event] = at < b and starts[at] < ends[event]
