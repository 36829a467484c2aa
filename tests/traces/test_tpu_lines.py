"""A TPU's lines: what is in flight, SparseCores, and planes that count nowhere."""

from dataclasses import replace

import pytest
from oracles.traced_devices import US, embedded, gpu, tpu
from oracles.xspaces import PlaneWriter

from hloscope.traces.categories import Programs, categorize
from hloscope.traces.exchanging import exchanging_of
from hloscope.traces.kernel_names import Category
from hloscope.traces.timeline import devices_of

FUSION = "%fusion.1 = f32[8] fusion(%gather.9)"
START = (
    "%all-gather-start.2 = (f32[8], f32[64]) all-gather-start(%fusion.1), replica_groups=[1,8]<=[8]"
)
DONE = "%all-gather-done.2 = f32[64] all-gather-done(%all-gather-start.2)"
COPY = "%copy-start.3 = (f32[8], f32[8], u32[]) copy-start(%fusion.1)"
COPIED = "%copy-done.3 = f32[8] copy-done(%copy-start.3)"

CORE = {
    "XLA Modules": [("jit_step(7)", 0, 100, None)],
    "XLA Ops": [
        (FUSION, 0, 20, "loop fusion"),
        (START, 20, 1, "all-gather-start"),
        (COPY, 21, 1, "copy-start"),
        ("%fusion.4 = f32[8] fusion(%p)", 22, 28, "convolution fusion"),
        (DONE, 50, 20, "all-gather-done"),  # waits: exposed
        (COPIED, 75, 5, "copy-done"),  # waits for a copy
        ("%fusion.5 = f32[8] fusion(%p)", 90, 10, "loop fusion"),
    ],
    "Async XLA Ops": [
        (START, 20, 50, "all-gather-start"),  # from the start to the end of its done
        (COPY, 21, 59, "copy-start"),
    ],
}


def test_what_is_in_flight_counts_where_nothing_is_computed_and_once(trace_of):
    (device,) = trace_of(tpu("TPU:0", CORE)).devices
    parts = device.parts
    # Computed from 0 to 20, 22 to 50, 90 to 100. The gather flies from 20 to 70, the copy
    # from 21 to 80: it alone from 70 on. From 80 to 90 there is nothing.
    assert parts.compute == 58 * US
    assert parts.exposed_communication == (2 + 20) * US
    assert parts.hidden_communication == 28 * US
    assert parts.exposed_copies == 10 * US
    assert (parts.control, parts.idle) == (0, 10 * US)
    (gather,) = parts.exchanges
    assert (gather.category, gather.number) == ("all-gather", 1)
    assert (gather.time, gather.exposed, gather.hidden) == (50 * US, 22 * US, 28 * US)
    (row,) = parts.collectives
    assert (row.key.module, row.key.instruction) == ("jit_step", "all-gather-start.2")
    assert (row.key.program, row.number) == (7, 1)
    assert (row.key.written.opcode, row.key.written.group_size) == ("all-gather", 8)


def test_without_the_line_of_what_is_in_flight_start_and_done_count_alone(trace_of):
    lines = {name: events for name, events in CORE.items() if name != "Async XLA Ops"}
    (device,) = trace_of(tpu("TPU:0", lines)).devices
    assert device.parts.exposed_communication == (1 + 20) * US
    assert device.parts.hidden_communication == 0
    assert device.parts.exposed_copies == (1 + 5) * US
    (row,) = device.parts.collectives
    assert (row.key.instruction, row.number, row.time) == ("all-gather-start.2", 1, 21 * US)


def _runs(recording):
    (device,) = devices_of(recording)
    programs = Programs(recording)
    flying = categorize(replace(device, work=device.flying), programs)
    exchanging = exchanging_of(device, categorize(device, programs), flying, programs)
    return [times.tolist() for times in exchanging.runs(0)]


def test_a_run_lasts_from_its_start_to_its_end(recorded_as):
    lines = CORE | {"Async XLA Ops": []}
    assert _runs(recorded_as(tpu("TPU:0", lines))) == [[20 * US], [70 * US]]


def test_a_run_that_nobody_waits_for_lasts_as_long_as_it_is_in_flight(recorded_as):
    operations = [event for event in CORE["XLA Ops"] if event[0] != DONE]
    lines = CORE | {"XLA Ops": operations}
    assert _runs(recorded_as(tpu("TPU:0", lines))) == [[20 * US], [70 * US]]


def test_a_sparse_core_is_a_device_of_its_own(trace_of):
    sparse = {
        "Sparse Core Modules": [("jit_step(7)", 10, 80, None)],
        "Sparse Core Ops": [("%fusion.8 = f32[8] fusion(%p)", 10, 70, "loop fusion")],
    }
    trace = trace_of(tpu("TPU:0", CORE), tpu("TPU:0 SparseCore 1", sparse))
    core, beside = trace.devices
    assert (core.name, beside.name) == ("TPU 0", "TPU 0 SparseCore 1")
    assert core.parts.compute == 58 * US
    assert beside.parts.busy == 70 * US
    # Only whole chips are held against each other.
    assert trace.hosts[0].arrivals.arrivals is None


def test_a_sparse_cores_line_among_those_of_the_core_is_not_the_cores_work(trace_of):
    lines = CORE | {"Sparse Core Ops": [("%sparse.1 = f32[8] x(%p)", 80, 10, "custom-call")]}
    core, beside = trace_of(tpu("TPU:0", lines)).devices
    assert (core.name, beside.name) == ("TPU 0", "TPU 0 SparseCore")
    assert core.parts.idle == 10 * US
    assert beside.parts.busy == 10 * US


def test_planes_of_a_chip_and_custom_ones_count_nowhere_and_are_told(trace_of):
    custom = PlaneWriter("/device:CUSTOM:MOSAIC")
    custom.line("LLO", [custom.event("matmul", 0, 1000 * US)])
    chip = PlaneWriter("#Chip0 TPU Non-Core HBM")
    chip.line("_counters_", [chip.event("HBM", 0, 1000 * US)])
    trace = trace_of(tpu("TPU:0", CORE), custom, chip)
    assert [device.name for device in trace.devices] == ["TPU 0"]
    assert trace.devices[0].whole.window.length == 100 * US
    told = " ".join(trace.hosts[0].notes)
    assert "/device:CUSTOM:MOSAIC counts nowhere" in told
    assert "#Chip0 TPU Non-Core HBM counts nowhere" in told


def test_planes_and_lines_that_were_cut_in_pieces_are_one_device(trace_of):
    whole = [("gemm", at * 10, 10, None) for at in range(6)]
    pieces = [gpu(0, {7: whole[:2]}), gpu(0, {7: whole[2:4]}), gpu(0, {7: whole[4:]})]
    (device,) = trace_of(*pieces).devices
    assert (device.events, device.parts.busy) == (6, 60 * US)
    assert device.tallies["stream"]["Stream #7(Compute)"].time == 60 * US


def test_operations_belong_to_the_execution_that_they_lie_in(recorded_as):
    lines = {
        "XLA Modules": [("jit_a(5)", 0, 10, None), ("jit_b(-6)", 20, 10, None)],
        "XLA Ops": [
            (f"%fusion.{at} = f32[8] fusion(%p)", at, 2, "loop fusion") for at in (0, 12, 21)
        ],
    }
    (device,) = devices_of(recorded_as(tpu("TPU:0", lines)))
    work = device.work
    assert work.programs.tolist() == [5, 0, -6]
    assert [work.modules[event] for event in range(3)] == ["jit_a", None, "jit_b"]


@pytest.mark.parametrize(
    ("label", "hint", "wanted"),
    [
        # Operands are no word on what an instruction does.
        ("%fusion.7 = f32[8] fusion(%gather.9)", None, Category.ELEMENTWISE),
        ("%slice-start.1 = f32[8] slice-start(%p)", "async-start", Category.IN_FLIGHT),
        ("%reduce-scatter-start.1 = f32[8] x(%p)", "async-start", Category.REDUCE_SCATTER),
        ("%copy-done.1 = f32[8] copy-done(%c)", "copy-done", Category.IN_FLIGHT),
    ],
)
def test_a_tpus_operation_is_told_by_its_hint_and_its_name(recorded_as, label, hint, wanted):
    recording = recorded_as(tpu("TPU:0", {"XLA Ops": [(label, 0, 5, hint)]}))
    (device,) = devices_of(recording)
    assert categorize(device, Programs(recording)).kinds == (wanted,)


# Ids are fingerprints: of 64 bits, and labels have them without a sign.
@pytest.mark.parametrize("program", ["7", "13928447644467914808"])
def test_an_exchange_is_described_by_the_embedded_program(trace_of, program):
    text = """
HloModule jit_step, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  p = f32[256]{0} parameter(0)
  all-reduce-start.5 = f32[256]{0} all-reduce-start(p), channel_id=1, replica_groups=[1,4]<=[4],
    use_global_device_ids=true, to_apply=add
  ROOT all-reduce-done.9 = f32[256]{0} all-reduce-done(all-reduce-start.5)
}
"""
    lines = {
        "XLA Modules": [(f"jit_step({program})", 0, 40, None)],
        "XLA Ops": [
            ("%all-reduce-start.5 = x", 0, 1, "all-reduce-start"),
            ("%all-reduce-done.9 = x", 10, 30, "all-reduce-done"),
        ],
    }
    plane = embedded(text, name=f"jit_step({program})")
    (device,) = trace_of(tpu("TPU:0", lines), plane).devices
    (row,) = device.parts.collectives
    # The end is joined to its start by the program: their numbers differ.
    assert (row.key.instruction, row.number, row.time) == ("all-reduce-start.5", 1, 31 * US)
    written = row.key.written
    assert (written.opcode, written.group_size, written.payload) == ("all-reduce", 4, 1024)


def test_exchanges_of_one_name_in_two_programs_are_two(trace_of):
    lines = {
        "XLA Modules": [("jit_a(0)", 0, 10, None), ("jit_b(0)", 20, 10, None)],
        "XLA Ops": [
            (f"%all-reduce.1 = f32[{at}] all-reduce(%p)", at, 5, "all-reduce") for at in (2, 21)
        ],
    }
    (device,) = trace_of(tpu("TPU:0", lines)).devices
    names = sorted(row.key.name for row in device.parts.collectives)
    assert names == [("jit_a", "all-reduce.1"), ("jit_b", "all-reduce.1")]
