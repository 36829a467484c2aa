"""Recordings of real devices, against what others say of the same files."""

import csv
import gzip
import json
from collections import defaultdict

import numpy as np
import pytest

from hloscope.traces.categories import Programs, categorize
from hloscope.traces.exposure import parts_of
from hloscope.traces.kernel_names import Category
from hloscope.traces.reading import read_recording, read_trace
from hloscope.traces.steps import StepSource, steps_of
from hloscope.traces.timeline import devices_of
from hloscope.traces.windows import Window

MS = 1e9  # picoseconds


@pytest.fixture
def recorded(fixtures_dir):
    def read(name):
        recording = read_recording(fixtures_dir / name)
        return recording, {device.name: device for device in devices_of(recording)}

    return read


@pytest.fixture
def tracelens(fixtures_dir):
    """A table that TraceLens made of the recording."""

    def table(name):
        folder = fixtures_dir / "xplane" / "amd_mi300x_conv_old_format.expected"
        with (folder / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    return table


def _window(device):
    return Window(*device.busy.span, "all")


def test_busy_time_and_its_parts_are_those_of_tracelens(recorded, tracelens):
    recording, devices = recorded("xplane/amd_mi300x_conv_old_format.xplane.pb")
    # It numbers processes from 1: device 7 is 8, device 0 is 1.
    theirs = defaultdict(dict)
    for row in tracelens("gpu_timeline"):
        theirs[int(row["gpu_pid"]) - 1][row["type"]] = float(row["time ms"])
    programs = Programs(recording)
    assert {f"GPU {number}" for number in theirs} == set(devices)
    for number, wanted in theirs.items():
        device = devices[f"GPU {number}"]
        parts = parts_of(device, categorize(device, programs), _window(device))
        assert parts.compute / MS == pytest.approx(wanted["computation_time"], rel=1e-6)
        assert parts.exposed_copies / MS == pytest.approx(wanted["exposed_memcpy_time"], rel=1e-6)
        assert parts.exposed_communication / MS == wanted["exposed_comm_time"] == 0
        assert parts.busy / MS == pytest.approx(wanted["busy_time"], rel=1e-6)


def test_kernel_totals_and_categories_are_those_of_tracelens(recorded, tracelens):
    recording, devices = recorded("xplane/amd_mi300x_conv_old_format.xplane.pb")
    work = devices["GPU 7"].work
    for row in tracelens("kernel_launchers_summary"):
        mine = work.labels.codes == list(work.labels.words).index(row["name"])
        total = work.durations[mine].sum() / MS
        assert total == pytest.approx(float(row["total_direct_kernel_time_ms"]), rel=1e-6)
        assert np.count_nonzero(mine) == int(row["Count"])
    categories = categorize(devices["GPU 7"], Programs(recording))
    convolved = work.durations[categories.of(Category.CONVOLUTION)].sum() / MS
    (theirs,) = [
        float(row["total_direct_kernel_time_ms"])
        for row in tracelens("kernel_launchers_summary_by_category")
        if row["op category"] == "Conv"
    ]
    assert convolved == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(
    "name", ["amd_mi300x_attention", "amd_mi300x_conv_old_format", "amd_mi355x_te_fused_attention"]
)
def test_every_operation_of_an_amd_recording_is_in_the_embedded_module(recorded, name):
    recording, devices = recorded(f"xplane/{name}.xplane.pb")
    programs = Programs(recording)
    for device in devices.values():
        categories = categorize(device, programs)
        said = device.work.operations.codes >= 0
        np.testing.assert_array_equal(categories.joined, said)
    assert programs.failed == {}


def test_several_kernels_of_one_call_are_told_by_their_own_names(recorded):
    recording, devices = recorded("xplane/amd_mi355x_te_fused_attention.xplane.pb")
    (device,) = devices.values()
    categories = categorize(device, Programs(recording))
    assert len(device.work) == 150
    assert np.count_nonzero(categories.of(Category.ATTENTION)) == 40
    # Six kernels overlap: the union is shorter than the sum.
    assert device.busy.total < device.work.durations.sum()


def test_totals_by_category_are_those_that_a_tpus_own_fields_give(recorded, fixtures_dir):
    name = "chrome/tpu_2core_inference.trace.json.gz"
    recording, devices = recorded(name)
    document = json.loads(gzip.decompress((fixtures_dir / name).read_bytes()))
    wanted = defaultdict(float)
    for event in document["traceEvents"]:
        category = (event.get("args") or {}).get("hlo_category")
        if category is not None and event["pid"] == 3:
            wanted[category] += round(event["dur"] * 1e6)
    device = devices["TPU 0"]
    found = np.bincount(
        device.work.hints.codes, device.work.durations, len(device.work.hints.words)
    )
    assert dict(zip(device.work.hints.words, found, strict=True)) == pytest.approx(wanted)
    categories = categorize(device, Programs(recording))
    loops = device.work.durations[categories.of(Category.ELEMENTWISE)].sum()
    assert loops == pytest.approx(wanted["loop fusion"] + wanted["broadcast"], rel=1e-3)


def test_steps_without_annotations_are_inferred_from_the_program_that_ran_longest(recorded):
    recording, devices = recorded("xplane/amd_mi355x_te_fused_attention.xplane.pb")
    steps = steps_of(recording, devices["GPU 0"])
    assert (steps.source, steps.name) == (StepSource.INFERRED, "jit_loss_fn")
    assert len(steps.rows) == 5
    assert all(step.busy <= step.wall for step in steps.rows)


def test_exposed_exchanges_of_each_core_are_what_a_tpus_own_fields_give(fixtures_dir):
    name = "chrome/tpu_2core_inference.trace.json.gz"
    document = json.loads(gzip.decompress((fixtures_dir / name).read_bytes()))
    wanted = {3: defaultdict(int), 4: defaultdict(int)}
    runs = {3: defaultdict(int), 4: defaultdict(int)}
    for event in document["traceEvents"]:
        category = (event.get("args") or {}).get("hlo_category")
        if category in ("all-reduce", "all-to-all", "all-gather"):
            wanted[event["pid"]][category] += round(event["dur"] * 1e6)
            runs[event["pid"]][category] += 1
    trace = read_trace(fixtures_dir / name)
    for device, process in zip(trace.devices, (3, 4), strict=True):
        found = {row.category: row for row in device.parts.exchanges}
        # A core runs one operation at a time, and none of these beside another: all exposed.
        assert {k: row.exposed for k, row in found.items()} == pytest.approx(wanted[process])
        assert {kind: row.number for kind, row in found.items()} == runs[process]
        assert device.parts.exposed_communication == sum(row.exposed for row in found.values())
        # Its label is cut off, its text is not.
        assert {row.key.written.group_size for row in device.parts.collectives} == {2}


def test_cores_of_one_chip_are_never_done_before_the_other_begins(fixtures_dir):
    trace = read_trace(fixtures_dir / "chrome" / "tpu_2core_inference.trace.json.gz")
    arrivals = trace.hosts[0].arrivals.arrivals
    first, second = arrivals.devices
    assert (first.compared, second.compared, arrivals.skipped) == (259, 259, {})
    # Of two, one waits for what the other one causes.
    assert (first.waited, second.waited) == (second.caused, first.caused)
    assert first.last + second.last == 259
    assert 0 < first.waited + second.waited < trace.devices[0].parts.exposed_communication


def test_devices_that_exchange_nothing_have_nothing_to_compare(fixtures_dir):
    trace = read_trace(fixtures_dir / "xplane" / "nvidia_2x_gtx1080ti_fusion.xplane.pb")
    assert [device.name for device in trace.devices] == ["GPU 0", "GPU 1"]
    assert all(device.parts.collectives == () for device in trace.devices)
    assert [row.compared for row in trace.hosts[0].arrivals.arrivals.devices] == [0, 0]
