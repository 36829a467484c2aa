"""What a trace keeps of each HLO instruction: time, kernels, executions, and its program."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.built_traces import US, BuiltTrace, serialized
from oracles.xspaces import PlaneWriter, space

from hloscope.chips import ChipKind
from hloscope.ir import read_proto
from hloscope.traces.categories import Programs
from hloscope.traces.kernel_instructions import Link
from hloscope.traces.operations import LAUNCH_GAP, operations_of
from hloscope.traces.reading import read_recording, read_trace
from hloscope.traces.recording import NONE, Recording, TextColumn
from hloscope.traces.self_time import self_times
from hloscope.traces.timeline import Device, devices_of
from hloscope.traces.windows import Window
from hloscope.traces.work import Work

STEP = """HloModule jit_step

ENTRY main {
  a = f32[64,64] parameter(0)
  loop_add_fusion.3 = f32[64,64] add(a, a)
  loop_add_fusion.4 = f32[64,64] multiply(loop_add_fusion.3, a), metadata={op_name="mul" deduplicated_name="loop_add_fusion.5"}
  loop_add_fusion.5 = f32[64,64] multiply(loop_add_fusion.4, a)
  gemm = f32[64,64] dot(loop_add_fusion.5, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = f32[64,64] negate(gemm)
}
"""  # noqa: E501


@pytest.fixture
def rows_of(tmp_path):
    def rows(built, **options):
        trace = built.read(tmp_path, **options)
        return {(row.name, row.link): row for row in trace.devices[0].operations.rows}

    return rows


def test_several_kernels_of_one_instruction_are_one_row_with_its_executions(rows_of):
    built = BuiltTrace()
    for _ in range(5):
        # A product split along what it sums, whose parts are added up by a kernel run twice.
        built.run(3, ("gemm", "splitk_gemm", 40), ("gemm", "splitKreduce", 4))
        built.run(3, ("gemm", "splitKreduce", 4), ("add", "loop_add", 7))
    rows = rows_of(built)
    gemm, add = rows["gemm", Link.SAID], rows["add", Link.SAID]
    assert [(kernel.label, kernel.number) for kernel in gemm.kernels] == [
        ("splitk_gemm", 5),
        ("splitKreduce", 10),
    ]
    assert (gemm.executions, gemm.number) == (5, 15)
    assert gemm.time == gemm.elapsed == 5 * 48 * US
    assert (add.executions, add.time) == (5, 35 * US)
    # A microsecond lies behind each kernel but the last one.
    assert sum(kernel.gaps for kernel in gemm.kernels) == 15 * US
    assert add.kernels[0].gaps == 4 * US


def test_kernels_of_one_instruction_that_overlap_count_once_in_its_elapsed_time(rows_of):
    built = BuiltTrace()
    said = {"hlo_op": "gemm", "program_id": 3}
    built.kernel("half", 0, 10, stream=1, **said)
    built.kernel("half", 4, 10, stream=2, **said)
    built.kernel("other", 30, 10, stream=1, hlo_op="add", program_id=3)
    gemm = rows_of(built)["gemm", Link.SAID]
    assert (gemm.time, gemm.elapsed) == (20 * US, 14 * US)


def test_gaps_that_launching_does_not_explain_are_no_launch_gaps(rows_of):
    built = BuiltTrace()
    far = LAUNCH_GAP / US + 1
    for begin in (0, 3, 3 + 1 + far):
        built.kernel("k", begin, 1, hlo_op="add", program_id=3)
    (row,) = rows_of(built).values()
    assert row.kernels[0].gaps == 2 * US


def test_only_what_lies_wholly_in_the_window_counts(tmp_path):
    from hloscope.traces.summary import summarize
    from hloscope.traces.windows import WindowChoice
    from hloscope.traces.xspace import read_xspace
    from hloscope.traces.xspace_recording import recording_of

    built = BuiltTrace()
    built.kernel("sort", 0, 5, hlo_op="warm_up", hlo_module="jit_init", program_id=9)
    for _ in range(6):
        built.run(3, ("gemm", "gemm", 40), ("add", "add", 9))
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(built.content())
    recording = recording_of(read_xspace(path))
    host = summarize(recording, WindowChoice.parse("2-3"))
    rows = {row.name: row for row in host.devices[0].operations.rows}
    assert {name: row.executions for name, row in rows.items()} == {"gemm": 2, "add": 2}
    assert rows["gemm"].elapsed == 80 * US


def test_kernels_of_a_cuda_graph_are_joined_by_their_name_where_one_instruction_has_it(rows_of):
    built = BuiltTrace({3: STEP})
    # As CUPTI tells them: every one of the graph's kernels is said to be of its first.
    said = {"hlo_op": "loop_add_fusion.3", "program_id": 3, "cuda_graph_exec_id": 9}
    for begin in (0, 100):
        built.kernel("loop_add_fusion_3", begin, 5, **said)
        built.kernel("loop_add_fusion_5", begin + 10, 6, **said)
        built.kernel("out", begin + 20, 7, **said)
        built.kernel("nvjet_sm90_tst_128x128", begin + 30, 8, **said)
    rows = rows_of(built)
    assert rows["loop_add_fusion.3", Link.SAID].time == 10 * US
    assert rows["out", Link.BY_NAME].time == 14 * US
    # Two instructions share the kernel, and a library's kernel names none.
    assert rows["", Link.NONE].time == 28 * US
    assert len(rows) == 3


def test_kernels_without_an_instruction_are_joined_by_name_and_others_are_left(rows_of):
    built = BuiltTrace({3: STEP})
    built.run(3, ("gemm", "nvjet", 5))
    built.kernel("loop_add_fusion_3.kd", 10, 5)
    built.kernel("unheard_of", 20, 5)
    rows = rows_of(built)
    assert rows["loop_add_fusion.3", Link.BY_NAME].program == 3
    assert rows["", Link.NONE].number == 1


def test_a_graph_of_library_kernels_that_name_their_own_instructions_is_believed(rows_of):
    built = BuiltTrace({3: STEP})
    for operation, label in (("gemm", "nvjet"), ("out", "out")):
        built.kernel(label, len(label), 1, hlo_op=operation, program_id=3, cuda_graph_exec_id=9)
    assert set(rows_of(built)) == {("gemm", Link.SAID), ("out", Link.SAID)}


def test_a_graph_whose_kernels_were_not_recorded_is_of_no_instruction(rows_of):
    built = BuiltTrace({3: STEP})
    built.kernel("CudaGraphExec:12", 0, 50, hlo_op="out", program_id=3, cuda_graph_exec_id=12)
    assert set(rows_of(built)) == {("CudaGraphExec:12", Link.GRAPH)}


def test_programs_that_most_time_went_into_are_kept_and_others_if_they_are_small(
    tmp_path, monkeypatch
):
    small = STEP.replace("64", "32")
    built = BuiltTrace({1: STEP, 2: small, 3: small.replace("32", "16")})
    built.run(1, ("gemm", "gemm", 90))
    built.run(2, ("gemm", "gemm", 8))
    built.run(3, ("gemm", "gemm", 2))
    assert list(built.read(tmp_path).hosts[0].programs) == [1, 2, 3]
    monkeypatch.setattr("hloscope.traces.operations._SMALL", 100)
    (host,) = built.read(tmp_path).hosts
    # 90% is not yet 95%, 98% is.
    assert list(host.programs) == [1, 2]
    assert read_proto(host.programs[1]).num_instructions == 6


def test_thirty_two_programs_are_kept_at_most(tmp_path):
    built = BuiltTrace({n: STEP.replace("64", str(n)) for n in range(1, 41)})
    for n in range(1, 41):
        built.run(n, ("gemm", "gemm", 100 + n))
    (host,) = built.read(tmp_path).hosts
    assert sorted(host.programs) == list(range(9, 41))


def test_hosts_that_ran_one_program_share_its_copy(tmp_path):
    built = BuiltTrace({3: STEP})
    built.run(3, ("gemm", "gemm", 90))
    (tmp_path / "a.xplane.pb").write_bytes(built.content("a"))
    other = BuiltTrace({4: STEP})
    other.run(4, ("gemm", "gemm", 90))
    (tmp_path / "b.xplane.pb").write_bytes(other.content("b"))
    first, second = (host.programs for host in read_trace(tmp_path).hosts)
    assert first[3] is second[4]


def test_what_is_kept_goes_from_process_to_process(tmp_path):
    built = BuiltTrace({3: STEP})
    built.run(3, ("gemm", "gemm", 90))
    trace = built.read(tmp_path)
    assert pickle.loads(pickle.dumps(trace)) == trace


def tpu(*, program=True, counts=True):
    """Two executions of one program on a TPU, as its profiler tells them."""
    plane = PlaneWriter("/device:TPU:0")
    names = {"%dot = f32[8] dot(...)": 30, "%while = (s32[]) while(...)": 20}
    ops, modules = [], []
    for run, begin in ((41, 0), (42, 1000)):
        whole = plane.event("jit_step(18446744073709551615)", begin * US, 500 * US, run_id=run)
        modules.append(whole)
        at = begin
        for name, length in names.items():
            ops.append(plane.event(name, at * US, length * US))
            at += length
    for name, flops in zip(names, (7000, -1), strict=True):
        known = {"model_flops": flops, "bytes_accessed": 50} if counts else {}
        plane.describe(name, hlo_category="fusion", **known)
    plane.line("XLA Modules", modules)
    plane.line("XLA Ops", ops)
    metadata = PlaneWriter("/host:metadata")
    if program:
        metadata.event("jit_step(18446744073709551615)", 0, 0)
        metadata.describe(
            "jit_step(18446744073709551615)", **{"Hlo Proto": serialized(STEP), "unsaid": 1}
        )
    return space(plane, metadata)


def test_operations_of_a_tpu_are_of_the_program_within_whose_execution_they_lie(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(tpu())
    (host,) = read_trace(path).hosts
    (device,) = host.devices
    # An id beyond 63 bits is its negative twin, wherever it stands.
    assert device.operations.runs == {-1: 2}
    assert list(host.programs) == [-1]
    rows = {row.name: row for row in device.operations.rows}
    assert {row.module for row in rows.values()} == {"jit_step"}
    assert rows["dot"].program == -1


def test_executions_that_the_window_cuts_are_not_counted(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(tpu())
    recording = read_recording(path)
    (device,) = devices_of(recording)
    own = self_times(device.work.begins, device.work.ends, device.work.lane)

    def runs(begin, end):
        window = Window(begin * US, end * US, "")
        return dict(operations_of(recording, device, Programs(recording), own, window).runs)

    assert runs(0, 1050) == {-1: 2}
    assert runs(0, 50) == runs(60, 1050) == {-1: 1}
    # Of the second execution the first operation lies in the window, the second does not.
    assert runs(0, 1040) == {}


def test_a_tpus_own_counts_are_added_up_and_garbage_among_them_is_unknown(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(tpu())
    rows = {row.name: row for row in read_trace(path).devices[0].operations.rows}
    assert (rows["dot"].flops, rows["dot"].moved_bytes) == (14_000, 100)
    # A negative number of FLOPs is none.
    assert (rows["while"].flops, rows["while"].moved_bytes) == (None, 100)
    path.write_bytes(tpu(counts=False))
    rows = {row.name: row for row in read_trace(path).devices[0].operations.rows}
    assert rows["dot"].flops is None


EVENTS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 12), st.integers(0, 2), st.integers(0, 2)),
    min_size=1,
    max_size=25,
)


@given(EVENTS, st.booleans())
def test_time_and_union_of_each_instruction_are_those_of_single_moments(events, far):
    # Far apart, the rows cannot be put one after the other into 64 bits.
    scale = 1 << 55 if far else 1
    size = len(events)
    begins = np.asarray([begin * scale for begin, *_ in events], np.int64)
    ends = begins + np.asarray([length * scale for _, length, *_ in events], np.int64)
    lane = np.asarray([lane for _, _, lane, _ in events], np.int16)
    zeros = np.zeros(size, np.int64)
    work = Work(
        begins=begins,
        ends=ends,
        lane=lane,
        labels=TextColumn(np.zeros(size, np.int32), ["kernel"]),
        operations=TextColumn(np.asarray([op for *_, op in events], np.int32), ["a", "b", "c"]),
        modules=TextColumn(np.full(size, NONE, np.int32), []),
        programs=zeros,
        correlations=zeros,
        runs=zeros,
        graphs=zeros,
        hints=TextColumn(np.full(size, NONE, np.int32), []),
    )
    device = Device("host", ChipKind.GPU, 0, ("1", "2", "3"), work, work, work, work)
    recording = Recording("host", "here", ())
    own = self_times(begins, ends, lane)
    found = operations_of(
        recording, device, Programs(recording), own, Window(int(begins.min()), int(ends.max()), "")
    )
    assert sum(row.time for row in found.rows) == own.sum()
    for row in found.rows:
        mine = [event for event in events if "abc"[event[3]] == row.name]
        moments = {at for begin, length, *_ in mine for at in range(begin, begin + length)}
        assert row.elapsed == len(moments) * scale
        assert row.number == row.executions == len(mine)
        assert row.kernels[0].time == sum(length for _, length, *_ in mine) * scale
