"""The memory command's report and picture, from small modules with known answers."""

import json
from xml.etree import ElementTree

import pytest

import hloscope
from hloscope.cli.run import run
from hloscope.errors import Unavailable, UsageError

TEXT = """HloModule step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  w = f32[256] parameter(0), metadata={op_name="state['w']"}
  x = f32[16,256] parameter(1), metadata={op_name="batch"}
  h = f32[16,256] reverse(x), dimensions={0},
    metadata={op_name="jit(f)/jvp(mlp)/rev" source_file="model.py" source_line=3}
  b = f32[16,256] reverse(h), dimensions={1}, metadata={op_name="jit(f)/transpose(jvp(mlp))/rev"}
  g = f32[256] custom-call(b), custom_call_target="sum",
    metadata={op_name="jit(f)/transpose(jvp(mlp))/sum"}
  n = f32[256] add(w, g), metadata={op_name="jit(f)/sgd/add"}
  m = f32[] constant(0)
  ROOT r = (f32[256], f32[]) tuple(n, m)
}
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "step.hlo"
    file.write_text(TEXT)
    return file


def table(report, name):
    return next(t for t in report.tables if t.name == name)


def cells(report, name):
    return {row[0]: row[1] for row in table(report, name).rows}


def test_totals_are_arguments_results_and_temporaries(path):
    report = hloscope.memory(path)
    totals = {name: cell.value for name, cell in cells(report, "memory").items()}
    arguments = 1024 + 16 * 1024
    assert totals["arguments"] == arguments
    assert totals["results in place"] == 1024
    assert totals["temporaries"] == 2 * 16 * 1024
    assert totals["constants"] == 4
    # Two results: one in place, a table of two pointers for both.
    assert totals["results apart"] == 16
    assert totals["peak"] == arguments + 16 + 4 + 2 * 16 * 1024
    assert report.summary.startswith("peak ")


def test_the_block_is_what_lives_at_once_and_the_gaps(path):
    totals = {name: cell.value for name, cell in cells(hloscope.memory(path), "memory").items()}
    assert totals["block of both"] == totals["temporaries"] + totals["gaps between them"]
    assert totals["allocated"] == totals["peak"] + totals["gaps between them"]
    assert "as XLA counts it" not in totals  # on TPUs only


def test_without_a_chip_the_report_says_how_to_name_one(path):
    report = hloscope.memory(path)
    assert any("--chip" in note for note in report.notes)
    assert not any(t.name == "fit" for t in report.tables)


def test_with_a_chip_it_says_what_is_left(path):
    report = hloscope.memory(path, chip="h100")
    fit = cells(report, "fit")
    assert fit["headroom"].value == fit["memory of the chip"].value - fit["allocated"].value
    assert "fits h100" in report.summary


def test_buffers_are_listed_largest_first_with_scope_line_and_kind(path):
    rows = table(hloscope.memory(path, top=3), "buffers").rows
    sizes = [row[2].value for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    saved = next(row for row in rows if row[0] == "h")
    assert (saved[3], saved[4], saved[5]) == ("saved", "mlp", "model.py:3")


def test_residuals_are_summed_by_scope(path):
    ((scope, arrays, size, at_peak),) = table(hloscope.memory(path), "residuals").rows
    assert (scope, arrays.value, size.value, at_peak.value) == ("mlp", 1, 16384, 16384)


def test_any_instruction_can_be_looked_at(path):
    kinds = {row[0]: row[2].value for row in table(hloscope.memory(path, at="n"), "kinds").rows}
    assert kinds["gradient"] == 1024
    assert "saved" not in kinds
    with pytest.raises(UsageError, match="no instruction"):
        hloscope.memory(path, at="nothing")


def test_a_module_without_a_schedule_says_so(tmp_path):
    file = tmp_path / "m.hlo"
    file.write_text(TEXT.replace(", is_scheduled=true", ""))
    with pytest.raises(Unavailable, match="not scheduled"):
        hloscope.memory(file)


def test_the_picture_is_svg_and_always_the_same(path, tmp_path):
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    hloscope.memory(path, plot=one)
    hloscope.memory(path, plot=two)
    assert one.read_bytes() == two.read_bytes()
    root = ElementTree.fromstring(one.read_text())
    assert root.tag.endswith("svg")
    assert any("peak" in (text.text or "") for text in root.iter())


def test_a_picture_that_cannot_be_written_is_an_error_with_a_place(path, tmp_path):
    with pytest.raises(UsageError) as error:
        hloscope.memory(path, plot=tmp_path / "missing" / "one.svg")
    assert "one.svg" in str(error.value)


def test_the_command_prints_it_within_80_columns(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(path.parent)
    assert run(["memory", path.name, "--chip", "v5e", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("peak ")
    assert max(map(len, lines)) <= 80


def test_the_document_holds_exact_bytes(path, capsys):
    assert run(["memory", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "memory"
    assert {t["name"] for t in document["tables"]} == {
        "memory",
        "kinds",
        "buffers",
        "residuals",
        "residual layers",
    }
