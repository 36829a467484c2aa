"""``hloscope collectives``: what a user reads of the exchanges."""

from __future__ import annotations

import io

import pytest

import hloscope
from hloscope.answers.reshards import reshard_tables
from hloscope.ir.compiler_log import FullRematerialization
from hloscope.passes.reshards import Reshards
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


def test_a_gradient_is_listed_by_the_leaf_that_it_updates(llama):
    rows = table(hloscope.collectives(llama, top=0), "exchanges").rows
    scattered = [row for row in rows if row[2] == "reduce-scatter"]
    assert {row[7] for row in scattered} == {"updates it"}
    assert all(row[6].startswith("state['") for row in scattered)
    assert {row[7] for row in rows if row[2] == "all-gather"} == {"moves it"}


def test_nothing_of_a_dump_without_names_is_left_unattributed(fixtures_dir):
    dump = fixtures_dir / "hlo" / "gpu_llama31_8b_1x8_unscheduled.hlo"
    report = hloscope.collectives(dump, top=0)
    rows = table(report, "exchanges").rows
    assert len(rows) == 1647
    assert all(row[6].startswith("parameter ") for row in rows)
    assert {row[7] for row in rows} == {"moves it", "updates it", "computed from it"}
    (note,) = (note for note in report.notes if "told by data flow" in note)
    assert note.startswith("1647 exchanges without a name")


def test_many_leaves_in_one_exchange_are_counted_under_the_keys_that_they_share(capture_arch):
    from hloscope.subjects import ArtifactSubject

    report = hloscope.collectives(
        ArtifactSubject(capture_arch("causal_transformer", target="cpu:8"))
    )
    listed = table(report, "exchanges")
    titles = [column.title for column in listed.columns]
    at, relation = titles.index("leaf or scope"), titles.index("relation")
    where = [row[at] for row in listed.rows if row[relation] == "updates it"]
    assert where == ["state['params'][20 leaves]"]


RESHARDED = """HloModule m, is_scheduled=true, num_partitions=4
ENTRY e {
  p = f32[256,1024] parameter(0), metadata={op_name="batch['x']"}
  n = f32[256,1024] negate(p), metadata={op_name="jit(f)/mlp/neg"}
  g = f32[1024,1024] all-gather(n), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},
    use_global_device_ids=true, metadata={op_name="jit(f)/mlp/sort"}
  ROOT s = f32[1024,1024] negate(g)
}"""


def test_a_change_of_sharding_is_listed_with_what_is_known_of_it(tmp_path):
    file = tmp_path / "step.hlo"
    file.write_text(RESHARDED)
    report = hloscope.collectives(file)
    found = table(report, "reshards")
    assert [column.title for column in found.columns] == [
        *("sent", "runs", "exchange", "over", "at", "on a device", "how"),
        *("leaf or scope", "line", "instruction"),
    ]
    (row,) = found.rows
    assert (row[0].value, row[0].basis) == (1024 * 1024 * 4 * 3 // 4, Basis.MODELLED)
    assert row[2:8] == (
        *("all-gather", "4 devices", "sort", "f32[256,1024] to f32[1024,1024]", "resharded"),
        "mlp",
    )
    assert any("known by name only" in note for note in report.notes)


def test_a_warning_of_the_partitioner_without_its_exchange_has_an_unknown_size():
    warning = FullRematerialization(
        "sin.0", "f32[8,4]", "jit(f)/sin", "{devices=[1,8]<=[8]}", "{x}"
    )
    (found,) = reshard_tables(Reshards((), (warning,), True, True), 0)
    (row,) = found.rows
    assert row[0].basis is Basis.UNKNOWN
    assert row[4:7] == ("sin", "f32[8,4] from {devices=[1,8]<=[8]} to {x}", "whole: XLA warns")
