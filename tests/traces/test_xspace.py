"""XSpaces, against JAX's own reader: every event of every file."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from jax.profiler import ProfileData
from oracles.xspaces import PlaneWriter, Reference, message, number, space, varint

from hloscope.errors import InputError
from hloscope.traces.events import StatKind
from hloscope.traces.xspace import read_xspace
from hloscope.traces.xspace_recording import recording_of

RECORDED = [
    "amd_mi300x_attention",
    "amd_mi300x_conv_old_format",
    "amd_mi355x_te_fused_attention",
    "cpu_no_device_plane",
    "nvidia_2x_gtx1080ti_fusion",
]


def _agree(path):
    """Every name, start, duration and stat that JAX's reader gives."""
    ours, theirs = read_xspace(path), ProfileData.from_file(str(path))
    compared = 0
    for plane, other in zip(ours.planes, theirs.planes, strict=True):
        assert plane.name == other.name
        for line, their_line in zip(plane.lines, other.lines, strict=True):
            assert line.name == their_line.name
            events = line.events
            columns = events.stats(plane.stat_names)
            row = -1
            for row, event in enumerate(their_line.events):
                metadata = plane.metadata(int(events.metadata[row]))
                assert metadata.name == event.name
                start = line.timestamp_ns + int(events.offset_ps[row]) / 1000
                # JAX's reader gives whole nanoseconds.
                assert start == pytest.approx(event.start_ns, rel=1e-12, abs=1)
                length = int(events.duration_ps[row]) / 1000
                assert length == pytest.approx(event.duration_ns, rel=1e-12, abs=1)
                found = {
                    plane.stat_names[key]: _value(plane, events, column, row)
                    for key, column in columns.items()
                    if column.kinds[row]
                }
                assert {**metadata.stats, **found} == dict(event.stats)
                compared += 1
            assert len(events) == row + 1
    return compared


def _value(plane, events, column, row):
    kind, value = column.kinds[row], column.values[row]
    if kind == StatKind.REFERENCE:
        return plane.stat_names[int(value)]
    if kind == StatKind.DOUBLE:
        return float(value.view(np.float64))
    if kind in (StatKind.STRING, StatKind.BYTES):
        at = int(value)
        size = int(events.buffer[at])
        content = events.buffer[at + 1 : at + 1 + size].tobytes()
        return content.decode()  # JAX gives bytes as text, too
    return int(value) if kind == StatKind.UINT else int(value.astype(np.int64))


@pytest.mark.parametrize("name", RECORDED)
def test_every_event_is_read_as_jax_reads_it(fixtures_dir, name):
    assert _agree(fixtures_dir / "xplane" / f"{name}.xplane.pb") > 50


@pytest.fixture
def written(tmp_path):
    def write(content, name="h.xplane.pb"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def _extremes(first_id):
    plane = PlaneWriter("/device:GPU:0", first_id)
    plane.line(
        "Stream #7(Compute)",
        [
            plane.event("a", 0, 0, big=(1 << 64) - 1, small=-(1 << 63), real=1.5),
            plane.event("b", (1 << 40) + 1, 7, text="written out", ref=Reference("kept once")),
            plane.event("c", 5, (1 << 61), raw=b"\x00\x7f", zero=0),
        ],
        timestamp_ns=1_700_000_000_000_000_000,
    )
    return space(plane)


@pytest.mark.parametrize("first_id", [1, 120, 20_000])
def test_numbers_of_sixty_four_bits_and_ids_of_every_size_are_read(written, first_id):
    assert _agree(written(_extremes(first_id))) == 3


def test_a_gzipped_file_is_the_same_file(written):
    content = _extremes(1)
    packed = read_xspace(written(gzip.compress(content), "h.xplane.pb.gz"))
    plain = read_xspace(written(content))
    assert [p.name for p in packed.planes] == [p.name for p in plain.planes]
    assert packed.planes[0].lines[0].events.duration_ps.tolist() == [0, 7, 1 << 61]


def test_fields_in_an_unusual_order_and_fields_of_a_later_version_are_no_trouble(written):
    later = number(77, 1) + message(99, b"later") + varint(12 << 3 | 1) + bytes(8)
    stat = number(4, 42) + number(1, 3)
    event = later + message(4, stat) + number(3, 9) + number(2, 8) + number(1, 5) + later
    line = message(4, event) + message(2, "Stream #1") + later + message(4, event) + number(3, 1)
    names = message(5, number(1, 3) + message(2, number(1, 3) + message(2, "correlation_id")))
    plane = message(3, line) + message(2, "/device:GPU:0") + names + later
    (found,) = read_xspace(written(message(1, plane))).planes
    (line,) = found.lines
    assert line.name == "Stream #1"
    assert line.events.metadata.tolist() == [5, 5]
    assert line.events.offset_ps.tolist() == [8, 8]
    assert line.events.stats([3])[3].numbers()[0].tolist() == [42, 42]
    assert found.metadata(5).name == "event 5"


def test_events_that_stand_for_several_are_left_out_and_counted(written):
    plane = PlaneWriter("/host:CPU")
    one = plane.event("x", 10, 5)
    several = message(4, number(1, 1) + number(3, 7) + message(4, number(1, 1)) + number(5, 3))
    plane.line("main", [one, several, one])
    recording = recording_of(read_xspace(written(space(plane))))
    assert [len(lane) for lane in recording.sections[0].lanes] == [2]
    assert recording.notes == ("1 events stand for several, without a place in time: left out",)


def test_events_out_of_all_time_are_left_out_and_counted(written):
    plane = PlaneWriter("/device:GPU:0")
    plane.line("Stream #1", [plane.event("x", 10, 5), plane.event("y", 10, -5)], 10**18)
    plane.line("Stream #2", [plane.event("x", 20, 5), plane.event("y", 1 << 62, 5)], 10**18)
    plane.line("Stream #3", [plane.event("x", 0, 5)], 3)
    (section,) = recording_of(read_xspace(written(space(plane)))).sections
    assert [lane.begins.tolist() for lane in section.lanes] == [[10], [20]]


def test_a_file_whose_bytes_were_taken_for_text_is_refused(fixtures_dir):
    with pytest.raises(InputError, match="whose bytes were taken for text"):
        read_xspace(fixtures_dir / "xplane" / "BROKEN_tpu_utf8_mangled.xplane.pb")


def test_a_missing_file_says_so():
    with pytest.raises(InputError, match="cannot be read"):
        read_xspace(Path("nowhere.xplane.pb"))
