"""What is said of two runs side by side."""

import json

import pytest
from oracles.runs import run

import hloscope
from hloscope.cli.run import run as command
from hloscope.errors import UsageError


def steps(number, every, *work):
    return [(step * every, list(work)) for step in range(number)]


FAST = steps(
    6,
    100,
    (1, "loop_add_fusion_3", "loop_add_fusion.3", 0, 60),
    (2, "ncclDevKernel_AllReduce_Sum", "all-reduce.1", 60, 20),
)
SLOW = steps(
    6,
    110,
    (1, "loop_add_fusion_5", "loop_add_fusion.5", 0, 60),
    (2, "ncclDevKernel_AllReduce_Sum", "all-reduce.1", 60, 30),
)


@pytest.fixture
def write(tmp_path):
    def write(name, *devices):
        path = tmp_path / f"{name}.xplane.pb"
        path.write_bytes(run(*devices))
        return path

    return write


@pytest.fixture
def pair(write):
    return write("before", FAST), write("after", SLOW)


def table(report, name):
    return next(table for table in report.tables if table.name == name)


def rows(report, name):
    """Name, before, after and change in microseconds, and the ratio, of each row."""
    found = {}
    for row in table(report, name).rows:
        *_, before, after, change, ratio = row
        found[row[0]] = (
            tuple(
                round(cell.value * 1e6, 3) if not isinstance(cell, str) else cell
                for cell in (before, after, change)
            ),
            ratio if isinstance(ratio, str) else ratio.value,
        )
    return found


def test_the_verdict_says_by_how_much_and_that_it_is_no_noise_and_where_from(pair):
    report = hloscope.trace(pair[0], against=pair[1])
    assert report.summary == (
        "100 us -> 110 us a step, +10.0%: larger than the spread of either; "
        "the most by exposed communication, +10.0 us."
    )
    assert report.passed is None


def test_the_other_way_round_it_is_faster(pair):
    report = hloscope.trace(pair[1], against=pair[0])
    assert "110 us -> 100 us a step, -9.1%" in report.summary
    assert "exposed communication, -10.0 us" in report.summary


def test_lists_hold_what_changed_and_close_on_the_whole(pair):
    report = hloscope.trace(pair[0], against=pair[1])
    # Windows are 580 us of six steps, and 640 us.
    idle, whole = round(100 / 6, 3), 10.0
    assert idle == 16.667
    assert rows(report, "by family") == {
        "ncclDevKernel_AllReduce": ((20.0, 30.0, 10.0), 1.5),
        "(1 other)": (("", "", 0.0), ""),
        "(idle)": (("", "", 0.0), ""),
        "(a step)": (("", "", whole), ""),
    }
    assert "all-reduce" in rows(report, "by category")
    assert "all-reduce.1" in rows(report, "by op")
    parts = rows(report, "parts")
    assert parts["exposed communication"] == ((20.0, 30.0, 10.0), 1.5)
    assert parts["idle"][0] == (idle, idle, 0.0)
    assert parts["a step"][0][2] == whole


def test_a_run_against_itself_has_changed_nothing(pair):
    report = hloscope.trace(pair[0], against=pair[0])
    assert report.summary == "100 us -> 100 us a step: no difference in the median step."
    assert not [each for each in report.tables if each.name.startswith("by ")]
    assert any(note.startswith("by category, family, op nothing changed") for note in report.notes)


def test_each_device_has_its_own_line_and_what_is_different_of_the_runs_is_said(write):
    one, two = write("one", FAST, FAST), write("two", FAST, SLOW)
    report = hloscope.trace(one, against=two)
    devices = rows(report, "devices")
    assert devices["GPU 0"] == ((80.0, 80.0, 0.0), 1.0)
    assert devices["GPU 1"] == ((80.0, 90.0, 10.0), 1.125)
    notes = hloscope.trace(one, against=write("three", FAST[:4])).notes
    assert "the runs differ in their devices: 2 devices before, 1 device after" in notes
    assert any(note.startswith("12 steps of all devices before and 4 after") for note in notes)


def test_without_steps_whole_windows_are_compared_and_that_is_said(write):
    copies = write("copies", [(0, [(1, "MemcpyH2D", "", 0, 45)])])
    report = hloscope.trace(write("one", FAST), against=copies)
    assert "no steps are known in the second" in report.summary
    steps = [row[3].value for row in table(report, "runs").rows]
    assert steps == [None, None]
    assert "a device's window" in table(report, "parts").title


def test_a_gate_fails_beyond_its_share_and_beyond_noise(pair, capsys):
    names = [str(path) for path in pair]
    gated = ["trace", names[0], "--against", names[1], "--fail-slower"]
    assert command([*gated, "5%"]) == 1
    assert "More than the 5.00% allowed." in capsys.readouterr().out
    assert command([*gated, "15"]) == 0
    assert "Within the 15.0% that is allowed." in capsys.readouterr().out
    assert command(["trace", names[1], "--against", names[0], "--fail-slower", "0"]) == 0


def test_a_gate_without_enough_steps_is_an_error_and_not_passed(write):
    few = write("few", FAST[:2])
    with pytest.raises(UsageError, match="four steps"):
        hloscope.trace(few, against=few, fail_slower=0.05)


@pytest.mark.parametrize("percent", ["-1", "much", "nan", "inf"])
def test_a_share_that_is_none_is_refused(pair, percent, capsys):
    names = [str(path) for path in pair]
    code = command(["trace", names[0], "--against", names[1], f"--fail-slower={percent}"])
    assert code == 2
    assert "5%" in capsys.readouterr().err


def test_what_does_not_go_with_a_comparison_is_refused(pair, tmp_path):
    for options in ({"plot": tmp_path / "a.svg"}, {"steps": True}, {"by": "kernel"}):
        with pytest.raises(UsageError, match="compared by category"):
            hloscope.trace(pair[0], against=pair[1], **options)
    with pytest.raises(UsageError, match="slower than another run"):
        hloscope.trace(pair[0], fail_slower=0.1)


def test_the_command_prints_it_within_80_columns(pair, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert command(["trace", str(pair[0]), "--against", str(pair[1])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert command(["trace", str(pair[0]), "--against", str(pair[1]), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["summary"].startswith("100 us -> 110 us")
