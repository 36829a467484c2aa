"""How kernels were launched: what tracers write of it, and what no device can have."""

import pytest
from oracles.xspaces import PlaneWriter, Reference, space

from hloscope.traces.kernel_details import KernelLaunch, kernel_details_of, parse_details
from hloscope.traces.reading import read_recording
from hloscope.traces.timeline import devices_of


def test_a_launch_of_nvidias_tracer():
    text = "regs:32 static_shared:1024 dynamic_shared:512 grid:128,2,1 block:256,1,1 occ_pct:75"
    assert parse_details(text) == (
        KernelLaunch(32, 1024 + 512, None, (128, 2, 1), (256, 1, 1), 75.0),
        (),
    )


def test_a_launch_of_amds_tracer_says_no_registers_and_no_occupancy():
    text = " grid:16,32,1 block:256,1,1 private_mem:168 group_mem:33792 occ_pct:0"
    assert parse_details(text) == (
        KernelLaunch(None, 33792, 168, (16, 32, 1), (256, 1, 1), None),
        (),
    )


def test_memory_that_was_never_written_is_unknown_and_its_neighbours_with_it():
    # 32462 = 0x7ece and 2191500840 = 0x829fb628 are the two halves of a pointer.
    text = "regs:2191500840 static_shared:32462 dynamic_shared:0 grid:6,1,1 block:256,1,1 occ_pct:0"
    launch, wrong = parse_details(text)
    assert launch == KernelLaunch(None, None, None, (6, 1, 1), (256, 1, 1), None)
    assert wrong == ("registers", "shared memory")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("regs:513", ("registers",)),
        ("static_shared:262145", ("shared memory",)),
        ("static_shared:200000 dynamic_shared:200000", ("shared memory",)),
        ("group_mem:18446744073709551615", ("shared memory",)),
        ("block:1025,1,1", ("blocks",)),
        ("block:64,64,1", ("blocks",)),
        ("block:0,1,1", ("blocks",)),
        ("block:8,8", ("blocks",)),
        ("grid:0,1,1", ("grids",)),
        ("grid:4294967296,1,1", ("grids",)),
        ("occ_pct:101", ("occupancies",)),
    ],
)
def test_what_no_device_has_is_unknown(text, wrong):
    assert parse_details(text) == (KernelLaunch(), wrong)


@pytest.mark.parametrize(
    "text",
    ["", "regs", "regs:", "regs:-5", "regs:1e9", "regs:" + "9" * 5000, "::::", "grid:,,", "\0"],
)
def test_other_texts_say_nothing(text):
    assert parse_details(text) == (KernelLaunch(), ())


def test_the_edges_are_possible():
    text = "regs:512 static_shared:262144 grid:4294967295,1,1 block:1024,1,1 occ_pct:100"
    assert parse_details(text) == (
        KernelLaunch(512, 1 << 18, None, (4294967295, 1, 1), (1024, 1, 1), 100.0),
        (),
    )


def test_launches_of_a_kernel_are_counted_by_their_shape(tmp_path):
    plane = PlaneWriter("/device:GPU:0")
    small = Reference("regs:8 static_shared:0 dynamic_shared:0 grid:1,1,1 block:32,1,1 occ_pct:50")
    large = "regs:8 static_shared:0 dynamic_shared:0 grid:9,1,1 block:32,1,1 occ_pct:50"
    wrong = "regs:70000 grid:9,1,1 block:32,1,1"
    said = [("k", small), ("k", large), ("k", large), ("l", wrong), ("l", wrong)]
    events = [
        plane.event(name, 10 * n, 5, correlation_id=n + 1, kernel_details=text)
        for n, (name, text) in enumerate(said)
    ]
    copy = plane.event("MemcpyH2D", 100, 5, correlation_id=9)
    plane.line("Stream #1", [*events, copy])
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(space(plane))
    (device,) = devices_of(read_recording(path))
    found = kernel_details_of(device)
    assert found.impossible == {"registers": 2}
    assert found.launches == {
        "k": (
            (KernelLaunch(8, 0, None, (9, 1, 1), (32, 1, 1), 50.0), 2),
            (KernelLaunch(8, 0, None, (1, 1, 1), (32, 1, 1), 50.0), 1),
        ),
        "l": ((KernelLaunch(None, None, None, (9, 1, 1), (32, 1, 1), None), 2),),
    }


def test_garbage_of_the_older_amd_tracer_is_counted(fixtures_dir):
    path = fixtures_dir / "xplane" / "amd_mi300x_conv_old_format.xplane.pb"
    found = {
        device.number: kernel_details_of(device) for device in devices_of(read_recording(path))
    }
    assert found[7].impossible == {"registers": 25, "shared memory": 25}
    assert all(
        launch.registers is None and launch.shared_bytes is None and launch.block == (256, 1, 1)
        for launches in found[7].launches.values()
        for launch, _ in launches
    )
    assert found[0].launches == {}  # copies have none
