"""The tables of the host of a trace."""

import pytest
from oracles import gpu_loops

from hloscope.answers.trace import report_trace
from hloscope.pipeline.findings import Basis
from hloscope.traces.reading import read_trace


@pytest.fixture
def reported(tmp_path):
    """The tables by name, as rows by column, and the notes."""

    def report(write, **options):
        made = report_trace(read_trace(write(tmp_path)), **options)
        tables = {
            table.name: [
                dict(zip([column.title for column in table.columns], row, strict=True))
                for row in table.rows
            ]
            for table in made.tables
        }
        return tables, made.notes

    return report


def test_who_sets_the_pace_is_said_with_its_numbers(reported):
    tables, notes = reported(gpu_loops.waiting)
    (row,) = tables["pace"]
    assert (row["device"], row["verdict"], row["waited for"]) == ("GPU 0", "host-bound", "3 of 3")
    assert row["device a step"].value == pytest.approx(500e-6)
    assert row["host a step"].value == pytest.approx(500e-6)
    assert row["steps ahead"].value == 0
    assert row["time ahead"].value == pytest.approx(30e-6)
    (note,) = [note for note in notes if note.startswith("GPU 0 is host-bound")]
    assert "the device was idle 43% of the time, 70% of it in the host's own work" in note
    assert note.endswith("the loop waits for 3 of 3 steps before the next.")


def test_the_budget_lists_what_took_longest_first_and_adds_up(reported):
    tables, _ = reported(gpu_loops.waiting)
    rows = tables["host"]
    assert [row["spent on"] for row in rows] == [
        "waiting on the device",
        "other Python",
        "launch",
        "between steps",
        "dispatch",
    ]
    assert sum(row["share"].value for row in rows) == pytest.approx(1)
    assert rows[0]["a step"].value == pytest.approx(500e-6)


def test_each_gap_is_listed_with_its_place_and_its_cause(reported):
    tables, _ = reported(gpu_loops.waiting)
    first = tables["idle gaps"][0]
    assert (first["step"], first["the host's"], first["in"]) == (
        "before 1",
        "other Python",
        "$train.py:7 loop",
    )
    # The device's first work begins at 150, the gap at 650.
    assert first["at"].value == pytest.approx(500e-6)
    assert first["length"].value == pytest.approx(500e-6)
    assert first["share"].value == pytest.approx(0.4)


def test_steps_of_the_host_are_listed_where_steps_are(reported):
    tables, _ = reported(gpu_loops.waiting, steps=True, top=2)
    assert "host" not in tables
    assert [row["step"] for row in tables["host steps"]] == ["0", "1"]
    first = tables["host steps"][0]
    assert first["wall"].value == pytest.approx(1000e-6)
    assert first["own work"].value == pytest.approx(500e-6)
    assert first["waiting"].value == pytest.approx(500e-6)
    assert first["mostly"] == "other Python"


def test_what_is_not_known_of_a_host_is_never_zero(reported):
    def write(path):
        loop = gpu_loops.GpuLoop()
        loop.kernel(0, 100, 1)
        loop.kernel(900, 100, 2)
        return loop.write(path)

    tables, notes = reported(write)
    assert "host" not in tables
    (row,) = tables["pace"]
    assert (row["verdict"], row["waited for"]) == ("unclear", "unknown")
    for name in ("host a step", "steps ahead", "time ahead"):
        assert row[name].basis is Basis.UNKNOWN
    (gap,) = tables["idle gaps"]
    assert gap["the host's"] == "unknown"
    assert gap["share"].basis is Basis.UNKNOWN
    assert any("no thread of the host is known to drive it" in note for note in notes)
