"""The picture of a run over time."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from oracles.runs import gpu_plane, run
from oracles.xspaces import space

import hloscope
from hloscope.answers.trace_plot import COLUMNS, plot_trace
from hloscope.cli.run import run as command
from hloscope.errors import UsageError
from hloscope.traces.reading import read_trace
from hloscope.traces.timeline_bins import Bins, edges_of
from hloscope.traces.windows import WindowChoice

SVG = "{http://www.w3.org/2000/svg}"


def device(steps=6, gap=1000):
    """Steps of 100 us, the first followed by a gap: compute, an exchange, a copy, nothing."""
    work = [
        (1, "nvjet_hsh_128x256", "gemm.1", 0, 50),
        (2, "ncclDevKernel_AllReduce_Sum", "all-reduce.1", 40, 30),
        (3, "MemcpyH2D", "", 70, 10),
    ]
    return [(step * 100 + (gap if step else 0), work) for step in range(steps)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "one.xplane.pb"
    annotations = [(10 + step, step * 20, 15) for step in range(6)]
    path.write_bytes(run(device(), device(), annotations=annotations))
    return path


def texts(svg):
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def areas(svg, kind):
    """Of each path of a class how much it covers, as a share of its columns."""
    paths = ElementTree.fromstring(svg).iter(f"{SVG}path")
    return [covered(path.get("d")) for path in paths if path.get("class") == kind]


def covered(shape):
    height = width = area = 0
    for move, number in re.findall(r"([vh])(-?\d+)", shape):
        if move == "v":
            height += int(number)
        else:
            width += int(number)
            area += height * int(number)
    return area / width / 1000


def test_what_is_painted_is_the_share_of_the_window(path):
    trace = read_trace(path, choice=WindowChoice("all"), columns=COLUMNS)
    svg = plot_trace(trace)
    for index, one in enumerate(trace.devices):
        parts, length = one.parts, one.parts.window.length
        # Compute is painted last, over what is stacked on it.
        assert areas(svg, "compute")[index] == pytest.approx(parts.compute / length, abs=1e-3)
        stacked = one.bins.compute + one.bins.exposed_communication + one.bins.exposed_copies
        there = one.bins.exposed_copies > 0
        copies = areas(svg, "copies")[index]
        assert copies == pytest.approx(stacked[there].sum() / length, abs=1e-3)
        hidden = parts.hidden_communication / length
        assert areas(svg, "hidden")[index] == pytest.approx(hidden, abs=1e-3)


def test_it_names_devices_steps_of_host_and_device_and_the_share_of_each_part(path, tmp_path):
    plot = tmp_path / "run.svg"
    hloscope.trace(path, window="all", plot=plot)
    said = texts(plot.read_text())
    assert {"GPU 0", "GPU 1", "host", "steps of GPU 0", "steps of GPU 1"} <= set(said)
    assert any("2 devices, the whole window, 1.58 ms" in text for text in said)
    # Of 1580 us six times 50 us of compute, 20 of an exchange that is exposed, 10 of a copy.
    assert "compute 19.0%" in said
    assert "exposed communication 7.59%" in said
    assert "exposed copies 3.80%" in said
    assert "hidden communication 3.80%, behind compute" in said
    assert "15" in said  # a step by its number
    assert said.count("30.4%") == 2  # busy, beside each device
    assert said.count("1.02 ms") == 2  # the gap behind the first step of each


def test_it_is_always_the_same_and_drawn_in_steady_state_where_that_is_known(path, tmp_path):
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    hloscope.trace(path, plot=one)
    hloscope.trace(path, plot=two)
    assert one.read_bytes() == two.read_bytes()
    # From the second step to the end of the sixth, behind which there is one copy more.
    assert any("steady state, 470 us" in text for text in texts(one.read_text()))


def test_it_stays_small_however_much_there_is_and_says_what_is_not_drawn(path):
    trace = read_trace(path, columns=COLUMNS)
    (host,) = trace.hosts
    random = np.random.default_rng(0)

    def restless(number):
        found = host.devices[0]
        window = found.windows.chosen
        edges = edges_of(window, COLUMNS)
        lengths = np.diff(edges)
        cuts = np.sort(random.random((4, len(lengths))), axis=0) * lengths
        ends = np.vstack((np.zeros_like(lengths), cuts.astype(np.int64), lengths))
        compute, exposed, copies, control, idle = np.diff(ends, axis=0)
        bins = Bins(window, edges, compute, exposed, compute // 2, copies, control, idle)
        return replace(found, name=f"GPU {number}", number=number, bins=bins)

    devices = tuple(restless(number) for number in range(70))
    svg = plot_trace(replace(trace, hosts=(replace(host, devices=devices),)))
    assert len(svg) < 500_000
    said = texts(svg)
    assert "GPU 63" in said
    assert "GPU 64" not in said
    # Of 470 us five times 70 us of a step and four times 10 us of a copy.
    assert any(text.startswith("6 more devices not drawn: busy 83.0%") for text in said)
    assert len(areas(svg, "compute")) == 64


def test_each_hosts_rows_begin_where_its_own_window_does(tmp_path):
    folder = tmp_path / "plugins" / "profile" / "one"
    folder.mkdir(parents=True)
    for host, begin in (("left", 0), ("right", 5000)):
        steps = [(begin + at, work) for at, work in device(gap=0)]
        path = folder / f"{host}.xplane.pb"
        path.write_bytes(space(gpu_plane(0, steps), hostnames=(host,)))
    svg = plot_trace(read_trace(tmp_path, columns=COLUMNS))
    said = texts(svg)
    assert {"left GPU 0", "right GPU 0"} <= set(said)
    assert any("2 devices of 2 hosts" in text for text in said)
    assert any("their clocks are not compared" in text for text in said)
    frames = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    assert len({frame.get("x") for frame in frames if frame.get("class") == "frame"}) == 1


def test_many_steps_are_numbered_as_far_as_there_is_room(tmp_path):
    path = tmp_path / "long.xplane.pb"
    path.write_bytes(run(device(steps=3000, gap=0)))
    svg = plot_trace(read_trace(path, columns=COLUMNS))
    numbers = [int(text) for text in texts(svg) if text.isdigit()]
    assert {"200", "400", "2800"} <= set(texts(svg))
    assert len(numbers) < 60
    assert len(svg) < 500_000


@pytest.mark.parametrize("name", ["run.png", "run", "missing/run.svg"])
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path, name):
    with pytest.raises(UsageError) as error:
        hloscope.trace(tmp_path / "nothing.xplane.pb", plot=tmp_path / name)
    assert name in str(error.value)


def test_the_command_draws_it(path, tmp_path, capsys):
    plot = tmp_path / "run.svg"
    assert command(["trace", str(path), "--plot", str(plot)]) == 0
    assert plot.read_text().startswith("<svg")
    assert "GPU 0" in capsys.readouterr().out
