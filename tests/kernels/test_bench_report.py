"""Benchmarks: a wrong kernel never wins, and what cannot be measured is a row."""

import dataclasses
import io
import json

import pytest

import hloscope
from hloscope.answers.bench import find_fastest, report_bench
from hloscope.kernels import registry
from hloscope.kernels.case import Direction
from hloscope.kernels.errors import ResultError
from hloscope.kernels.measurement import Measured, Outcome, Times
from hloscope.kernels.running import Bench
from hloscope.report.screen import Screen
from hloscope.report.tables import draw_table

RIGHT = (ResultError("output", False, 0.002, 0.001, 0.0156),)
WRONG = (ResultError("output", False, 0.5, 0.001, 0.0156),)
WRONG_GRADIENT = (*RIGHT, ResultError("query", True, float("inf"), float("inf"), 0.0156))


def row(name, seconds, errors=RIGHT, direction=Direction.FORWARD):
    (case,) = registry.cases_of(
        registry.get("attention"),
        sizes={},
        settings={},
        implementations=(name,),
        direction=direction,
    )
    times = Times(tuple(seconds * share for share in (0.9, 1.0, 1.1)))
    return Measured(case, Outcome.MEASURED, errors=errors, times=times)


def test_the_fastest_is_the_fastest_that_is_right():
    rows = [row("reference", 3.0), row("xla", 2.0), row("cudnn", 1.0, WRONG)]
    assert find_fastest(rows) == ["xla"]
    assert find_fastest([row("xla", 2.0, WRONG)]) == []


def test_a_wrong_gradient_loses_the_forward_pass_too():
    rows = [
        row("reference", 2.0),
        row("xla", 1.0),
        row("reference", 4.0, direction=Direction.BACKWARD),
        row("xla", 1.5, WRONG_GRADIENT, Direction.BACKWARD),
    ]
    assert find_fastest(rows) == ["reference"]
    report = report_bench(rows, {}, lambda _: None)
    cells = {cells[0]: cells[-1] for cells in report.tables[0].rows}
    assert cells == {"reference": "fastest", "xla": "wrong: d query"}
    assert "xla" in report.summary.partition("gave wrong results")[2]


def test_a_time_without_errors_is_neither_shown_nor_compared():
    rows = [row("reference", 2.0), row("xla", 1.0, ())]
    assert find_fastest(rows) == ["reference"]
    report = report_bench(rows, {}, lambda _: None)
    unchecked = next(cells for cells in report.tables[0].rows if cells[0] == "xla")
    assert unchecked[1].value is None


def test_what_lies_within_the_spread_is_level():
    rows = [row("reference", 1.05), row("xla", 1.0), row("cudnn", 1.4)]
    assert find_fastest(rows) == ["xla", "reference"]


def test_what_was_not_measured_is_a_row_with_its_reason():
    full = dataclasses.replace(
        row("xla", 1.0), outcome=Outcome.OUT_OF_MEMORY, reason="too large", times=None, errors=()
    )
    report = report_bench([row("reference", 1.0), full], {}, lambda _: None)
    assert report.tables[0].rows[1][-1] == "out of memory: too large"
    assert report.summary == "Fastest: reference."


def test_where_nothing_ran_the_summary_says_why():
    lost = dataclasses.replace(
        row("cudnn", 1.0), outcome=Outcome.UNSUPPORTED, reason="no GPU", times=None, errors=()
    )
    assert report_bench([lost], {}, lambda _: None).summary == "Nothing ran: no GPU."


def test_times_with_gradients_fit_a_terminal():
    rows = [
        row(name, 1.0, direction=direction)
        for direction in Direction
        for name in ("reference", "tokamax_mosaic_gpu")
    ]
    rows.append(
        dataclasses.replace(rows[0], outcome=Outcome.UNSUPPORTED, reason="no " * 9, errors=())
    )
    report = report_bench(rows, {}, lambda _: None)
    stream = io.StringIO()
    draw_table(Screen(stream, width=80), report.tables[0])
    shown = stream.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "error" in shown
    assert "no room for: spread" in shown


def test_values_given_twice_are_run_once(monkeypatch):
    taken = []

    def fake(cases, **_):
        taken.extend(case["s"] for case in cases)
        return Bench(tuple(Measured(case, Outcome.FAILED, "a toy") for case in cases), "toy", "cpu")

    monkeypatch.setattr("hloscope.kernels.running.measure", fake)
    hloscope.bench("attention", lengths=(8, 16, 8), implementations=("xla",))
    assert taken == [8, 16]


def test_every_table_of_times_has_a_column_of_errors_that_cannot_be_left_out():
    report = report_bench([row("reference", 1.0)], {}, lambda _: None)
    (column,) = [column for column in report.tables[0].columns if column.title == "error"]
    assert not column.spare


@pytest.fixture(scope="module")
def dropped():
    """Room for fewer rows than the groups have: the capacity form drops some, and is wrong."""
    return hloscope.bench(
        "grouped_matmul",
        shape="s64,g4,d16",
        lengths=(64,),
        switches=("capacity=0.5",),
        implementations=("dense", "capacity", "megablox"),
        dtype="float32",
        rounds=3,
        seconds=0,
    )


def test_a_kernel_that_drops_rows_is_found_wrong_and_does_not_win(dropped):
    rows = {cells[0]: cells for cells in dropped.tables[0].rows}
    assert rows["capacity"][-1] == "wrong: output"
    assert rows["capacity"][1].value > 0
    assert rows["dense"][-1] == "fastest"
    assert rows["megablox"][-1].startswith("unsupported: it is written for TPUs")
    assert dropped.summary == "Fastest: dense. 1 implementation gave wrong results: capacity."


def test_memory_kernels_and_route_stand_beside_the_times(dropped):
    (programs,) = [table for table in dropped.tables if table.name == "programs"]
    assert [cells[0] for cells in programs.rows] == ["dense", "capacity"]
    for _, direction, temporaries, peak, kernels, route in programs.rows:
        assert direction == "forward"
        assert 0 < temporaries.value < peak.value
        assert kernels.value >= 1
        assert "product" in route
    assert dropped.header["device"] == "cpu (cpu)"


def test_lists_of_lengths_and_widths_are_read_from_the_command_line(monkeypatch, capsys):
    from hloscope.cli import main
    from hloscope.pipeline.findings import Report

    taken = []

    def fake(family, **options):
        taken.append((family, options["lengths"], options["widths"], options["backward"]))
        return Report("bench", family, {})

    monkeypatch.setattr("hloscope.api.bench", fake)
    wanted = ("attention", [256, 1024], [64, 128], True)
    for words in (
        "attention --seq 256 1024 --dims 64 128 --backward",
        "--seq 256 --seq 1024 attention --backward --dims 64 128",
    ):
        assert main(["bench", *words.split(), "--json"]) == 0
    assert taken == [wanted, wanted]
    document, _ = json.JSONDecoder().raw_decode(capsys.readouterr().out)
    assert document["command"] == "bench"
