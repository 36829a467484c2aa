"""CUDA graphs: the graph as a whole, its nodes, or both."""

import numpy as np
import pytest
from oracles.traced_devices import US
from oracles.xspaces import PlaneWriter

from hloscope.traces.categories import Programs, categorize
from hloscope.traces.kernel_names import Category
from hloscope.traces.timeline import devices_of

DETAILS = {"kernel_details": "regs:32 grid:1,1,1"}


def _plane(events):
    plane = PlaneWriter("/device:GPU:0")
    written = [
        plane.event(name, begin * US, length * US, **stats) for name, begin, length, stats in events
    ]
    plane.line("Stream #7(Compute)", written)
    return plane


def _whole(begin, length, graph=9, launch=1):
    stats = {"cuda_graph_exec_id": graph, "correlation_id": launch}
    return (f"CudaGraphExec:{graph}", begin, length, stats)


@pytest.mark.parametrize(
    "node", [{"cuda_graph_exec_id": 9, "correlation_id": 40}, {"correlation_id": 1}]
)
def test_a_graph_whose_kernels_are_recorded_counts_once(recorded_as, node):
    # The same graph runs from 0 to 30 and from 50 to 80; of its nodes two and one are there.
    events = [
        _whole(0, 30),
        ("gemm", 2, 10, DETAILS | node),
        ("loop_add_fusion", 15, 10, DETAILS | node),
        _whole(50, 30),
        ("gemm", 55, 20, DETAILS | node),
    ]
    (device,) = devices_of(recorded_as(_plane(events)))
    assert len(device.work) == 3
    assert device.busy.total == (10 + 10 + 20) * US
    assert device.notes == (
        "2 events of whole CUDA graphs are left out: the kernels that ran in them are recorded",
    )


def test_a_graph_without_its_kernels_is_one_event_of_its_own_kind(recorded_as):
    other = {"cuda_graph_exec_id": 8, "correlation_id": 2}
    events = [
        # It bears the name of the first operation that ran in it.
        ("CudaGraphExec:9", 0, 30, {"cuda_graph_exec_id": 9, "hlo_op": "all-reduce.1"}),
        ("gemm", 40, 5, DETAILS | other),  # of another graph
        _whole(60, 20, graph=8, launch=3),  # whose second run has no kernel
    ]
    recording = recorded_as(_plane(events))
    (device,) = devices_of(recording)
    categories = categorize(device, Programs(recording))
    graphs = categories.of(Category.GRAPH)
    assert device.work.durations[graphs].tolist() == [30 * US, 20 * US]
    assert not categories.communicating.any()
    assert device.notes == (
        "2 CUDA graphs were recorded as a whole: what ran in them is not known, "
        "and all of it counts as compute",
    )


def test_kernels_that_tell_their_graph_are_no_graphs(recorded_as):
    events = [("gemm", at * 10, 10, DETAILS | {"cuda_graph_id": 3}) for at in range(4)]
    (device,) = devices_of(recorded_as(_plane(events)))
    np.testing.assert_array_equal(device.work.graphs, [3, 3, 3, 3])
    assert device.notes == ()
