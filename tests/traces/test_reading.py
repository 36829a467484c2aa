"""Several hosts: one after the other or side by side, and only what is summed up is kept."""

import weakref

import pytest
from oracles.xspaces import PlaneWriter, Reference, space

from hloscope.traces import reading
from hloscope.traces.reading import read_recording, read_trace


def _host(number):
    """A GPU that runs a step of three kernels ten times, on each host a little slower."""
    plane = PlaneWriter(f"/device:GPU:{number}")
    length = 1000 + number
    said = {"hlo_module": Reference("jit_step")}
    kernels = [
        plane.event(
            f"loop_add_fusion_{n % 3}",
            n * 2000,
            length,
            hlo_op=Reference(f"add.{n % 3}"),
            correlation_id=n + 1,
            **said,
        )
        for n in range(30)
    ]
    plane.line("Stream #7(Compute)", kernels)
    return space(plane, hostnames=(f"host{number}",))


@pytest.fixture
def run(tmp_path):
    """A folder of one run of four hosts."""
    for number in range(4):
        (tmp_path / f"host{number}.xplane.pb").write_bytes(_host(number))
    return tmp_path


def test_every_host_of_a_run_is_summed_up(run):
    trace = read_trace(run)
    assert [host.host for host in trace.hosts] == ["host0", "host1", "host2", "host3"]
    assert [device.time for device in trace.devices] == [30 * (1000 + n) for n in range(4)]


def test_of_a_host_only_the_summary_is_kept_when_the_next_one_is_read(run, monkeypatch):
    alive = []
    before = []

    def watched(path):
        before.append(sum(recording() is not None for recording in alive))
        recording = read_recording(path)
        alive.append(weakref.ref(recording))
        alive.extend(
            weakref.ref(lane.begins.base if lane.begins.base is not None else lane.begins)
            for section in recording.sections
            for lane in section.lanes
        )
        return recording

    monkeypatch.setattr(reading, "read_recording", watched)
    trace = read_trace(run)
    assert len(trace.hosts) == 4
    assert before == [0, 0, 0, 0]


def test_several_processes_find_what_one_finds(run, monkeypatch):
    alone = read_trace(run)
    monkeypatch.setattr(reading, "_WORTH_A_PROCESS", 0)
    monkeypatch.setattr(reading, "_cores", lambda: 2)
    started = []

    class Watched(reading.ProcessPoolExecutor):
        def __init__(self, workers, **settings):
            started.append(workers)
            super().__init__(workers, **settings)

    monkeypatch.setattr(reading, "ProcessPoolExecutor", Watched)
    assert read_trace(run) == alone
    assert started == [2]


def test_cores_are_counted_where_the_system_does_not_say_which_may_be_used(monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    assert reading._cores() == 12
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert reading._cores() == 1
