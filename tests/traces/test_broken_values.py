"""Values that no device and no clock has, in files that are whole."""

import sys

import pytest
from oracles.bad_files import US, gpu_plane
from oracles.xspaces import PlaneWriter, message, number, space

from hloscope.report import terminal
from hloscope.traces.reading import read_recording
from hloscope.traces.summary import summarize


def _one_line(events, **more):
    plane = PlaneWriter("/device:GPU:0")
    plane.line("Stream #1", events(plane), **more)
    return plane


def test_numbers_at_the_ends_of_64_bits_never_wrap_around(written):
    ends = [(1 << 63) - 1, -(1 << 63), (1 << 62), -(1 << 62), (1 << 61), -(1 << 61), -1, 0]
    plane = _one_line(
        lambda plane: (
            [
                plane.event("k", offset, duration, correlation_id=offset)
                for offset in ends
                for duration in ends
            ]
            + [plane.event("k", 10, 5)]
        )
    )
    found = summarize(read_recording(written(space(plane))))
    (device,) = found.devices
    # Of 8 x 8 events those with an offset of 0 or -1 are near; of their 8 durations 3 are too
    # long, 4 negative, and 0 is possible.
    assert device.events == 3
    assert (device.whole.window.begin, device.whole.window.end) == (10, 15)
    assert device.whole.busy == 5
    assert f"{6 * 8 + 2 * 3} events lie more than 26 days from the others: left out" in found.notes
    assert f"{2 * 4} events end before they begin: left out" in found.notes


@pytest.mark.parametrize("timestamp", [(1 << 63) - 1, -(1 << 63), 1 << 62, 0, -1])
def test_a_line_at_any_time_is_read(answered, timestamp):
    plane = PlaneWriter("/device:GPU:0")
    plane.line("Stream #1", [plane.event("k", 5, 5)], timestamp)
    plane.line("Stream #2", [plane.event("k", 10, 5)], timestamp)
    assert answered(space(plane)).summary.startswith("GPU 0 was busy 100.0% of 0")


def _environment(start, stop):
    plane = PlaneWriter("Task Environment")
    plane.plane_stat("profile_start_time", start)
    plane.plane_stat("profile_stop_time", stop)
    return plane


@pytest.mark.parametrize("start", [1_700_000_000_000_000_000, 10**18])
@pytest.mark.parametrize("absolute", [True, False], ids=["since 1970", "since the start"])
def test_events_outside_of_the_recording_are_left_out_and_counted(written, start, absolute):
    second = 10**12
    plane = _one_line(
        lambda plane: [
            plane.event("k", 0, second),
            plane.event("k", 2 * second, second),
            plane.event("k", 9 * second, 2 * second),  # it was stopped within this one
            plane.event("early", -3 * second, second),
            plane.event("late", 12 * second, second),
            plane.event("long", 0, 13 * second),
        ],
        timestamp_ns=start if absolute else 0,
    )
    content = space(plane, _environment(start, start + 10 * 10**9))
    found = summarize(read_recording(written(content)))
    (device,) = found.devices
    assert set(device.tallies["kernel"]) == {"k"}
    assert device.whole.busy == 4 * second
    assert found.notes == (
        "3 events lie outside of the recording, or are longer than all of it: left out",
    )


def test_a_device_with_another_clock_is_kept(written):
    plane = _one_line(lambda plane: [plane.event("k", 50 * 10**12, US) for _ in range(3)])
    content = space(plane, _environment(10**18, 10**18 + 10**10))
    found = summarize(read_recording(written(content)))
    assert found.devices[0].events == 3
    assert "its clock is another one, and nothing is left out" in found.notes[0]


@pytest.mark.parametrize(
    ("start", "stop"),
    [(5, 5), (9, 5), (0, 1 << 62), (-(1 << 63), (1 << 63) - 1), ((1 << 64) - 1, 0), (1.5, 2.5)],
)
def test_a_recording_whose_own_times_are_none_is_read_without_them(written, start, stop):
    plane = _one_line(lambda plane: [plane.event("k", 10, 5)])
    found = summarize(read_recording(written(space(plane, _environment(start, stop)))))
    assert found.devices[0].events == 1


def test_planes_and_lines_of_one_name_are_one_device_and_count_once(written):
    first, second = gpu_plane(0), gpu_plane(0)
    second.line("Stream #7(Compute)", [second.event("other", 50 * US, US, correlation_id=9)], 1000)
    found = summarize(read_recording(written(space(first, second))))
    (device,) = found.devices
    assert device.events == 4 + 4 + 1
    assert device.whole.busy == 4 * 3 * US + US  # the same times twice are one busy time
    assert device.tallies["kernel"]["k0"].number == 4


def test_of_metadata_with_one_id_the_last_counts_as_in_any_reader(written):
    plane = gpu_plane(0)
    again = message(4, number(1, 1) + message(2, number(1, 1) + message(2, "renamed")))
    content = message(1, plane.write() + again)
    found = summarize(read_recording(written(content)))
    assert set(found.devices[0].tallies["kernel"]) == {"renamed", "k1"}


def test_one_stat_under_two_ids_is_one_stat(written):
    plane = PlaneWriter("/host:CPU")
    plane.line(
        "worker",
        [
            plane.event("dot.1", 0, 5, hlo_op="dot.1"),
            plane.event("dot.2", 10, 5, **{"hlo_op ": "dot.2"}),
        ],
    )
    name = message(2, number(1, 2) + message(2, "hlo_op "))
    shorter = message(2, number(1, 2) + message(2, "hlo_op"))
    plain = plane.write()
    entry = message(5, number(1, 2) + name)
    assert entry in plain
    content = message(1, plain.replace(entry, message(5, number(1, 2) + shorter)))
    found = summarize(read_recording(written(content)))
    assert set(found.devices[0].tallies["op"]) == {"dot.1", "dot.2"}


def test_names_that_are_no_text_are_shown_and_not_obeyed(answered, capsys):
    plane = PlaneWriter("/device:GPU:0")
    plane.line("Stream #1", [plane.event("k\x1b[31m\n", 0, 5)])
    content = space(plane)
    odd = content.replace(b"k\x1b[31m\n", b"k\xff\xfe\x1b[1\n")
    assert len(odd) == len(content)
    for each in (content, odd):
        report = answered(each)
        terminal.write(report, sys.stdout)
        assert "\x1b" not in capsys.readouterr().out


def test_hundreds_of_planes_and_lines_are_read(written):
    gpus = [gpu_plane(n, 1) for n in range(300)]
    many = PlaneWriter("/device:GPU:5000")
    for n in range(1_500):
        many.line(f"Stream #{n}", [many.event("k", n * US, US, correlation_id=1)])
    found = summarize(read_recording(written(space(*gpus, many))))
    assert len(found.devices) == 301
    assert found.devices[-1].whole.busy == 1_500 * US
    assert len(found.devices[-1].tallies["stream"]) == 1_500


def test_stats_of_every_kind_in_the_wrong_place_are_no_stats(written):
    plane = PlaneWriter("/device:GPU:0")
    values = [float("nan"), float("inf"), b"\xff", "text", (1 << 64) - 1, -1]
    names = ["correlation_id", "hlo_op", "program_id", "kernel_details", "cuda_graph_id"]
    plane.line(
        "Stream #1",
        [
            plane.event("k", 10 * n, 5, **dict.fromkeys(names, value))
            for n, value in enumerate(values)
        ],
    )
    found = summarize(read_recording(written(space(plane))))
    assert found.devices[0].events == len(values)
    assert found.devices[0].whole.busy == 5 * len(values)


def test_a_text_longer_than_its_event_is_refused(answered):
    plane = PlaneWriter("/host:CPU")
    plane.line("worker", [plane.event("dot.1", 0, 5, hlo_op="abcdefgh")])
    content = space(plane).replace(b"\x2a\x08abcdefgh", b"\x2a\x78abcdefgh")
    assert "a text that reaches beyond its event" in answered(content).message


def test_an_event_that_is_broken_inside_is_refused_where_it_is_looked_into(answered):
    plane = PlaneWriter("/device:GPU:0")
    plane.line("Stream #1", [plane.event("k", 0, 5, correlation_id=1234567)])
    stat = plane.stat("correlation_id", 1234567)
    content = space(plane)
    assert stat in content
    answer = answered(content.replace(stat, stat[:3] + b"\xff" * (len(stat) - 3)))
    assert "no whole XSpace" in answer.message


def test_identifiers_that_no_tracer_gives_are_taken_as_unknown_and_counted(written):
    plane, negative = PlaneWriter("/device:GPU:0"), PlaneWriter("/device:GPU:-1")
    numbers = [-1, -(1 << 63), 7]
    plane.line(
        "Stream #1",
        [plane.event("k", 10 * n, 5, correlation_id=n_) for n, n_ in enumerate(numbers)],
    )
    negative.line("Stream #1", [negative.event("k", 0, 5, correlation_id=1)])
    plane.plane_stat("clock_rate", float("nan"))
    plane.plane_stat("core_count", 28)
    found = summarize(read_recording(written(space(plane, negative))))
    (device,) = found.devices
    assert device.whole.busy == 3 * 5  # their times are as good as others
    assert device.about == {"core_count": 28}
    assert found.notes == (
        "/device:GPU:-1: no device has such a number, its 1 events are left out",
        "GPU 0: 2 events have impossible correlations: taken as unknown",
    )


def test_a_cpus_operations_of_impossible_devices_are_left_out_and_counted(written):
    plane = PlaneWriter("/host:CPU")
    ordinals = [0, 0, -1, 1 << 40, 1]
    plane.line(
        "worker",
        [
            plane.event("dot.1", 10 * n, 5, hlo_op="dot.1", device_ordinal=ordinal)
            for n, ordinal in enumerate(ordinals)
        ],
    )
    found = summarize(read_recording(written(space(plane))))
    assert [(device.name, device.events) for device in found.devices] == [
        ("CPU 0", 2),
        ("CPU 1", 1),
    ]
    assert found.notes == (
        "CPU 0: the line 'operations of impossible devices' is not understood, 2 events",
    )
