"""Events that a recording should have and has not."""

import pytest
from oracles.xspaces import PlaneWriter, space

from hloscope.traces import losses
from hloscope.traces.reading import read_recording
from hloscope.traces.summary import summarize

N = 200
STEP = 1_000_000


@pytest.fixture
def recorded(tmp_path):
    """Notes on a recording of launches and kernels, one a microsecond."""

    def notes(launched, ran, call="cuLaunchKernel", errors=(), ahead=1, **more):
        host, device = PlaneWriter("/host:CPU"), PlaneWriter("/device:GPU:0")
        host.line(
            "main",
            [host.event(call, n * STEP // ahead, 10, correlation_id=n + 1) for n in launched],
        )
        device.line(
            "Stream #1",
            [device.event("k", n * STEP + 50, 10, correlation_id=n + 1, **more) for n in ran],
        )
        path = tmp_path / "h.xplane.pb"
        path.write_bytes(space(host, device, errors=errors))
        return list(summarize(read_recording(path)).notes)

    return notes


@pytest.mark.parametrize(
    "call", ["cuLaunchKernel", "cudaLaunchKernelExC", "hipMemcpyDtoDAsync", "k"]
)
def test_launches_whose_kernels_are_missing_are_counted(recorded, call):
    ran = [n for n in range(N) if n % 4]
    (note,) = recorded(range(N), ran, call)
    # The last launch, 199, has its kernel: 50 of the 199 before it have none.
    assert note == "50 of 199 launches have no kernel: events were lost, and times are too low"


def test_every_launch_with_its_kernel_is_nothing_to_speak_of(recorded):
    assert recorded(range(N), range(N)) == []


def test_a_few_that_are_missing_are_nothing_to_speak_of(recorded):
    assert recorded(range(N), range(5, N)) == []
    assert recorded(range(5, N), range(N)) == []


def test_what_had_not_run_when_the_recording_stopped_is_not_lost(recorded):
    # The host launches ten times as fast as the device runs, and is done long before it.
    assert recorded(range(N), range(N // 2), ahead=10) == []


def test_devices_that_fall_silent_before_the_host_does_have_lost_events(recorded):
    (note,) = recorded(range(N), range(N // 2))
    assert note == (
        "100 launches at the end have no kernel: the devices' events stop before the recording does"
    )


def test_kernels_without_launches_tell_of_a_host_that_was_not_recorded(recorded):
    (note,) = recorded(range(50), range(N))
    assert note.startswith("150 of 200 events of GPUs have no launch")


def test_kernels_of_graphs_and_other_calls_have_no_launch_of_their_own(recorded):
    assert recorded(range(20), range(N), cuda_graph_id=7) == []
    assert recorded(range(N), range(0, N, 2), "cuStreamSynchronize") == []
    assert recorded(range(N), range(0, N, 2), "cuGraphLaunch") == []


def test_what_the_profiler_says_of_dropped_events_is_told_and_explained(recorded):
    said = (
        "Detected GPU events dropped on h: Profiler has collected 5 driver events and 6 device "
        "events. 7 events dropped because total device(activity) events reaches max."
    )
    notes = recorded(range(N), range(N), errors=[said])
    assert f"the profiler says: {said}" in notes
    assert "the profiler lost events: times and counts are too low" in notes


def test_as_many_events_as_the_profiler_keeps_are_not_all(recorded, monkeypatch):
    monkeypatch.setattr(losses, "_LIMIT", N)
    (note,) = recorded(range(N), range(N))
    assert "is all that the profiler keeps" in note
    assert recorded(range(N - 1), range(N - 1)) == []


def test_a_tpus_own_count_of_dropped_events_is_told(tmp_path):
    plane = PlaneWriter("/device:TPU:0")
    plane.line("XLA Ops", [plane.event("fusion.1", 0, 5)])
    plane.plane_stat("dropped_traces", 12)
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(space(plane))
    assert summarize(read_recording(path)).notes == (
        "/device:TPU:0: 12 events were dropped: times and counts are too low",
    )


@pytest.mark.parametrize(
    "name", ["amd_mi300x_attention", "amd_mi355x_te_fused_attention", "nvidia_2x_gtx1080ti_fusion"]
)
def test_whole_recordings_have_lost_nothing(fixtures_dir, name):
    path = fixtures_dir / "xplane" / f"{name}.xplane.pb"
    assert summarize(read_recording(path)).notes == ()
