"""Files that are cut off: what is whole before the cut is read, the rest is said to be missing."""

import gzip
import json

import pytest
from oracles.bad_files import RECORDED, US, gpu_plane, or_error
from oracles.xspaces import message, space

import hloscope
from hloscope.errors import InputError
from hloscope.traces.reading import read_recording
from hloscope.traces.summary import summarize


def _planes(*planes):
    return [message(1, plane.write()) for plane in planes]


def test_a_file_cut_at_any_byte_gives_the_planes_before_it_and_says_where(written):
    planes = _planes(gpu_plane(0), gpu_plane(1), gpu_plane(2))
    content = b"".join(planes) + message(4, "host")
    ends = [sum(map(len, planes[: n + 1])) for n in range(3)]
    for size in range(len(content)):
        whole = sum(end <= size for end in ends)
        path = written(content[:size])
        found = or_error(lambda path=path: summarize(read_recording(path)))
        if isinstance(found, InputError):
            assert whole == 0
            assert found.hint
            assert found.message == "the file is empty" or (
                f"cut off at byte {size:,}" in found.message
            )
            continue
        names = [device.name for device in found.devices]
        # A plane's names stand behind its events: from there on it is of use.
        assert names[:whole] == [f"GPU {n}" for n in range(whole)]
        assert whole <= len(names) <= whole + 1
        for device in found.devices:
            assert (device.whole.busy, device.events) == (4 * 3 * US, 4)
            assert set(device.tallies["kernel"]) == {"k0", "k1"}
        assert bool(found.cut) == (size not in ends)


def test_a_plane_without_its_names_is_left_out_and_said_to_be(answered):
    first, second = _planes(gpu_plane(0), gpu_plane(1))
    begin = second.index(b"Stream #7")
    for size in range(begin + 200, second.index(b"k1"), 7):
        report = answered(first + second[:size])
        assert "within the plane /device:GPU:1" in report.header["partial"]
        assert "4 events of it that can be read have no names yet" in report.header["partial"]
        assert report.header["devices"].value == 1


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_cut_at_every_tenth_is_refused_or_read_in_part(fixtures_dir, answered, name):
    content = (fixtures_dir / "xplane" / f"{name}.xplane.pb").read_bytes()
    for tenth in range(10):
        answer = answered(content[: len(content) * tenth // 10])
        said = answer.message if isinstance(answer, InputError) else answer.header["partial"]
        assert "cut off" in said if tenth else said == "the file is empty"


def test_devices_before_the_cut_are_read_as_in_the_whole_file(fixtures_dir, written):
    content = (fixtures_dir / "xplane" / "amd_mi300x_attention.xplane.pb").read_bytes()
    whole = summarize(read_recording(written(content)))
    part = summarize(read_recording(written(content[: len(content) * 8 // 10])))
    assert part.cut.startswith("the file is cut off at byte 309,254 of 386,")
    (before,), (after,) = whole.devices, part.devices
    assert after.tallies == before.tallies
    # Times are counted from the earliest line, which is the host's in the whole file.
    for of in ("busy", "compute", "exposed_copies", "idle"):
        assert getattr(after.whole, of) == getattr(before.whole, of)


def test_a_gzip_that_is_cut_off_is_read_up_to_there(fixtures_dir, answered):
    content = (fixtures_dir / "xplane" / "nvidia_2x_gtx1080ti_fusion.xplane.pb").read_bytes()
    packed = gzip.compress(content)
    report = answered(packed[:-400], "h.xplane.pb.gz")
    assert report.header["devices"].value == 2
    assert "within the plane /host:CPU" in report.header["partial"]
    # All of the planes, and only the checksum is missing.
    report = answered(packed[:-4], "h.xplane.pb.gz")
    assert report.header["partial"] == "the gzip file is cut off: what would follow is missing"
    assert "cut off" in answered(packed[:50], "h.xplane.pb.gz").message
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 255
    assert "cannot be read" in answered(bytes(broken), "h.xplane.pb.gz").message


def test_json_that_is_cut_off_is_read_up_to_there(fixtures_dir, answered, written):
    packed = (fixtures_dir / "chrome" / "tpu_2core_inference.trace.json.gz").read_bytes()
    content = gzip.decompress(packed)
    half = content[: len(content) // 2]
    # The last event that is whole is before the last comma between two of them.
    wanted = json.loads(half[: half.rindex(b"},{") + 1] + b"]}")["traceEvents"]
    report = answered(half, "h.trace.json")
    assert f"{len(wanted):,} entries before that are read" in report.header["partial"]
    recording = read_recording(written(half, "h.trace.json"))
    read = sum(len(lane) for section in recording.sections for lane in section.lanes)
    assert read == sum(event["ph"] == "X" for event in wanted)
    assert "partial" in answered(packed[: len(packed) // 2], "h.trace.json.gz").header
    assert "no JSON" in answered(content[:30], "h.trace.json").message


def test_a_file_that_is_still_being_written_is_read_as_far_as_it_is(written):
    content = space(gpu_plane(0), gpu_plane(1))
    path = written(b"")
    sizes = range(0, len(content) + 1, len(content) // 8)
    devices = []
    for before, size in zip([0, *sizes], sizes, strict=False):
        with path.open("ab") as file:
            file.write(content[before:size])
        found = or_error(lambda: hloscope.trace(path))
        if isinstance(found, InputError):
            assert "cut off" in found.message or "empty" in found.message
            devices.append(0)
        else:
            devices.append(found.header["devices"].value)
    assert devices == sorted(devices)
    assert (devices[0], devices[-1]) == (0, 2)
