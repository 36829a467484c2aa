"""Kernel by kernel against xprof, the profiler's own viewer.

It agrees on every kernel of every GPU recording that is at hand: names, occurrences and
total durations to a nanosecond. Three things differ, and are not compared or said below:

- xprof lists kernels alone. The older AMD tracer marks its copies with no launch's details,
  so they are no kernels to it; the newer one runs them as kernels, which both list.
- It takes registers and shared memory as they are written: 2,191,500,840 registers from the
  older AMD tracer, and 0 from the newer one, which writes none; here both are unknown.
- One kernel launched in several shapes is several rows there; they are added up.
"""

import json
import logging
import shutil
from collections import defaultdict

import pytest

from hloscope.traces.kernel_details import kernel_details_of
from hloscope.traces.reading import read_recording
from hloscope.traces.timeline import devices_of

convert = pytest.importorskip(
    "xprof.convert.raw_to_tool_data",
    reason="xprof is not installed: pip install xprof, which brings a server with it",
)

COPIES = {"amd_mi300x_conv_old_format": {"CopyDeviceToDevice"}}
GPUS = [
    "amd_mi300x_attention",
    "amd_mi300x_conv_old_format",
    "amd_mi355x_te_fused_attention",
    "nvidia_2x_gtx1080ti_fusion",
]


@pytest.fixture
def kernel_stats(fixtures_dir, tmp_path):
    """Rows of xprof's kernel stats; it writes what it has computed beside the file."""

    def rows(name):
        logging.getLogger("tensorboard").setLevel(logging.ERROR)
        copy = tmp_path / f"{name}.xplane.pb"
        shutil.copyfile(fixtures_dir / "xplane" / copy.name, copy)
        options = {"use_saved_result": False}
        content, _ = convert.xspace_to_tool_data([str(copy)], "kernel_stats", options)
        table = json.loads(content)
        names = [column["id"] for column in table["cols"]]
        return [
            dict(zip(names, [cell["v"] for cell in row["c"]], strict=True)) for row in table["rows"]
        ]

    return rows


@pytest.mark.parametrize("name", GPUS)
def test_every_kernel_runs_as_often_and_as_long_as_xprof_says(fixtures_dir, kernel_stats, name):
    ours, theirs = defaultdict(lambda: [0, 0]), defaultdict(lambda: [0, 0])
    for device in devices_of(read_recording(fixtures_dir / "xplane" / f"{name}.xplane.pb")):
        work = device.work
        for code, duration in zip(work.labels.codes, work.durations.tolist(), strict=True):
            mine = ours[work.labels.words[code]]
            mine[0] += 1
            mine[1] += duration
    for row in kernel_stats(name):
        known = theirs[row["kernel_name"]]
        known[0] += int(row["occurrences"])
        known[1] += round(row["total_duration_us"] * 1e6)
    assert set(ours) - set(theirs) == COPIES.get(name, set())
    assert theirs
    for kernel, (number, duration) in theirs.items():
        assert ours[kernel][0] == number
        assert ours[kernel][1] == pytest.approx(duration, abs=1_000)


@pytest.mark.parametrize("name", GPUS)
def test_every_launch_has_the_shape_that_xprof_says(fixtures_dir, kernel_stats, name):
    ours = defaultdict(set)
    for device in devices_of(read_recording(fixtures_dir / "xplane" / f"{name}.xplane.pb")):
        for kernel, launches in kernel_details_of(device).launches.items():
            ours[kernel] |= {launch for launch, _ in launches}
    for row in kernel_stats(name):
        shape = row["block_dim"], row["grid_dim"]
        mine = [
            launch
            for launch in ours[row["kernel_name"]]
            if (_text(launch.block), _text(launch.grid)) == shape
        ]
        assert mine
        if name.startswith("nvidia"):
            (launch,) = mine
            assert launch.registers == row["registers_per_thread"]
            assert launch.shared_bytes == row["shmem_bytes"]
            assert launch.occupancy == row["occupancy_pct"]


def _text(numbers):
    return ",".join(map(str, numbers))
