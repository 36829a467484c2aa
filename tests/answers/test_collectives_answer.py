"""``hloscope collectives``: what a user reads of the exchanges."""

from __future__ import annotations

import io

import pytest

import hloscope
from hloscope.pipeline.findings import Basis
from hloscope.report import terminal


def written(report):
    stream = io.StringIO()
    terminal.write(report, stream)
    return stream.getvalue()


def table(report, name):
    return next(table for table in report.tables if table.name == name)


@pytest.fixture
def llama(fixtures_dir):
    return fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"


def test_the_sums_by_kind_by_part_and_in_all_are_the_same(llama):
    report = hloscope.collectives(llama, chip="v6e", top=0)
    sums = {
        name: sum(row[place].value for row in table(report, name).rows)
        for name, place in (("totals", 4), ("parts", 3), ("exchanges", 0))
    }
    assert len(set(sums.values())) == 1
    assert len(table(report, "exchanges").rows) == 33
    assert report.summary.startswith("33 exchanges, 839 runs a step: each device sends 39.3 GiB")


def test_without_a_chip_bytes_are_given_and_times_are_not(llama):
    report = hloscope.collectives(llama)
    assert [column.title for column in table(report, "parts").columns] == [
        *("part", "exchanges", "runs", "sent"),
    ]
    assert any("no chip given" in note for note in report.notes)


def test_an_unscheduled_module_has_times_but_says_nothing_of_what_is_exposed(fixtures_dir):
    dump = fixtures_dir / "hlo" / "gpu_llama31_8b_1x8_unscheduled.hlo"
    report = hloscope.collectives(dump, chip="h100", top=3)
    exposed = [row[-1] for row in table(report, "parts").rows]
    assert [cell.basis for cell in exposed] == [Basis.UNKNOWN] * len(exposed)
    assert "exposed" not in report.summary.partition(";")[0]
    assert any("not scheduled" in note for note in report.notes)


def test_one_device_exchanges_nothing(fixtures_dir):
    report = hloscope.collectives(fixtures_dir / "compiled" / "today" / "cpu_mm.hlo")
    assert report.summary == "No device exchanges anything with another."
    assert report.tables == ()


def test_the_mesh_of_an_architecture_names_the_axes(capture_arch):
    from hloscope.subjects import ArtifactSubject

    artifact = capture_arch("causal_transformer", target="cpu:8")
    report = hloscope.collectives(ArtifactSubject(artifact))
    assert {row[0] for row in table(report, "totals").rows} == {"data"}
    assert {row[0] for row in table(report, "parts").rows} <= {"forward", "backward", "other"}


def test_the_page_fits_eighty_columns(llama):
    text = written(hloscope.collectives(llama, chip="v6e"))
    assert max(map(len, text.splitlines())) <= 80
