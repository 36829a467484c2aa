"""A device's work put together from its lanes."""

import numpy as np
import pytest
from oracles.xspaces import PlaneWriter, Reference, space

from hloscope.traces.reading import read_recording
from hloscope.traces.recording import NONE
from hloscope.traces.timeline import devices_of


@pytest.fixture
def recorded(tmp_path):
    def read(*planes):
        path = tmp_path / "h.xplane.pb"
        path.write_bytes(space(*planes))
        return read_recording(path)

    return read


def _stream(plane, number, names, start=0):
    plane.line(
        f"Stream #{number}(Compute)",
        [
            plane.event(
                name,
                start + place * 100,
                10 * (place + 1),
                hlo_op=Reference(f"op.{name}"),
                hlo_module=Reference("jit_step(7)"),
                program_id=7,
                correlation_id=number * 10 + place,
            )
            for place, name in enumerate(names)
        ],
        number_=number,
    )


def _rows(work):
    return [
        (
            begin,
            end,
            int(lane),
            work.labels[event],
            work.operations[event],
            work.modules[event],
            program,
            correlation,
        )
        for event, (begin, end, lane, program, correlation) in enumerate(
            zip(
                work.begins.tolist(),
                work.ends.tolist(),
                work.lane,
                work.programs.tolist(),
                work.correlations.tolist(),
                strict=True,
            )
        )
    ]


def _expected(streams):
    return [
        (place * 100, place * 100 + 10 * (place + 1), lane, name, f"op.{name}", "jit_step", 7,
         number * 10 + place)
        for lane, (number, names) in enumerate(streams)
        for place, name in enumerate(names)
    ]  # fmt: skip


def test_streams_side_by_side_are_joined_without_a_copy_of_their_times(recorded):
    plane = PlaneWriter("/device:GPU:0")
    _stream(plane, 7, "abc")
    _stream(plane, 8, "cbad")
    recording = recorded(plane)
    (device,) = devices_of(recording)
    assert _rows(device.work) == _expected([(7, "abc"), (8, "cbad")])
    for lane in recording.sections[0].lanes:
        assert np.shares_memory(lane.begins, device.work.begins)
        assert np.shares_memory(lane.ends, device.work.ends)


def test_streams_with_another_line_between_them_are_joined_all_the_same(recorded):
    plane = PlaneWriter("/device:GPU:0")
    _stream(plane, 7, "abc")
    plane.line("XLA Modules", [plane.event("jit_step(7)", 0, 1000)])
    _stream(plane, 8, "cbad")
    (device,) = devices_of(recorded(plane))
    assert _rows(device.work) == _expected([(7, "abc"), (8, "cbad")])


def test_a_stat_that_was_let_go_of_is_decoded_again(recorded):
    plane = PlaneWriter("/device:GPU:0")
    _stream(plane, 7, "abc")
    recording = recorded(plane)
    devices_of(recording)
    stats = recording.sections[0].lanes[0].stats
    assert stats.numbers("correlation_id")[0].tolist() == [70, 71, 72]
    assert [stats.texts("hlo_op")[event] for event in range(3)] == ["op.a", "op.b", "op.c"]
    assert stats.texts("nothing").codes.tolist() == [NONE] * 3


def test_a_lane_is_a_stream_by_most_of_its_events_wherever_they_stand(recorded):
    plane = PlaneWriter("/device:GPU:0")
    bare = [plane.event("marker", n, 1) for n in range(4_000)]
    marked = [plane.event("kernel", 10_000 + n, 1, correlation_id=n) for n in range(6_000)]
    plane.line("first", bare + marked)
    plane.line("second", bare + marked[:3_000])
    (device,) = devices_of(recorded(plane))
    assert device.lanes == ("first",)
    assert device.not_understood == (("second", 7_000),)


def test_events_with_all_in_common_are_one_group(recorded):
    plane = PlaneWriter("/device:GPU:0")
    _stream(plane, 7, "abab")
    _stream(plane, 8, "ba")
    (device,) = devices_of(recorded(plane))
    groups = device.work.groups
    labels = [device.work.labels.words[group.label] for group in groups.rows]
    assert sorted(labels) == ["a", "b"]
    assert [labels[place] for place in groups.places.tolist()] == list("abab" + "ba")
    assert {group.program for group in groups.rows} == {7}
