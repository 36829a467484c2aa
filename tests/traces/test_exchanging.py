"""Exchanges of a GPU: kernels beside others, by arithmetic."""

from oracles.traced_devices import ALL_REDUCE, US, embedded, gpu

from hloscope.traces.summary import summarize
from hloscope.traces.windows import WindowChoice

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_a_library_s_kernels_are_exposed_where_no_other_kernel_runs(trace_of):
    streams = {
        7: [("gemm", 0, 40, "dot.1"), ("loop_add_fusion", 60, 20, "fusion.2")],
        # From 30 to 70: behind the product until 40, behind the sum from 60 on.
        21: [(NCCL, 30, 40, "all-reduce.1")],
        # From 75 to 95: behind the sum until 80.
        22: [(GATHER, 75, 20, "all-gather-start.2")],
    }
    (device,) = trace_of(gpu(0, streams)).devices
    parts = device.parts
    assert parts.window.length == 95 * US
    assert parts.compute == 60 * US
    assert parts.exposed_communication == (20 + 15) * US
    assert parts.hidden_communication == (10 + 10 + 5) * US
    assert parts.idle == 0
    reduce, gather = parts.collectives
    assert (reduce.key.instruction, reduce.time, reduce.exposed) == (
        "all-reduce.1",
        40 * US,
        20 * US,
    )
    assert (gather.key.instruction, gather.time, gather.exposed) == (
        "all-gather-start.2",
        20 * US,
        15 * US,
    )
    assert reduce.key.module == "jit_step"
    assert reduce.key.written is None  # nothing says over which devices


def test_the_program_says_over_which_devices_and_how_much(trace_of):
    text = ALL_REDUCE.replace("GROUPS", "[2,4]<=[8]")
    (device,) = trace_of(gpu(0, {7: [(NCCL, 0, 5, "all-reduce.1")]}), embedded(text)).devices
    (row,) = device.parts.collectives
    written = row.key.written
    assert (written.opcode, written.group_size, written.payload) == ("all-reduce", 4, 4096)
    assert written.devices() == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_kernels_of_no_known_instruction_are_one_exchange_a_name(trace_of):
    kernels = [(NCCL, 0, 5, None), (NCCL, 10, 5, None), (GATHER, 20, 5, None)]
    (device,) = trace_of(gpu(0, {7: kernels})).devices
    found = {row.key.instruction: (row.number, row.time) for row in device.parts.collectives}
    assert found == {NCCL: (2, 10 * US), GATHER: (1, 5 * US)}


def test_only_what_lies_in_the_window_counts(recorded_as):
    # Three steps of a product and an all-reduce that takes 10, 20 and 30: the second counts.
    kernels = [
        kernel
        for step in range(3)
        for kernel in (
            ("gemm", 100 * step, 30, "dot.1"),
            (NCCL, 100 * step + 30, 10 * (step + 1), "all-reduce.1"),
        )
    ]
    recording = recorded_as(gpu(0, {7: kernels}))
    (device,) = summarize(recording, WindowChoice("steps", 1, 1)).devices
    (row,) = device.parts.collectives
    assert (row.number, row.time, row.exposed) == (1, 20 * US, 20 * US)
    assert [row.time for row in device.whole.exchanges] == [60 * US]


def test_an_exchange_by_copies_between_devices_is_one(trace_of):
    kernels = [("MemcpyP2P", 0, 10, "collective-permute-start.1"), ("MemcpyP2P", 20, 5, "copy.3")]
    (device,) = trace_of(gpu(0, {7: kernels})).devices
    assert device.parts.exposed_communication == 10 * US
    assert device.parts.exposed_copies == 5 * US
