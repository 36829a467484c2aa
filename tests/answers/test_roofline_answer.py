"""``hloscope roofline``: what it says, how it lists, and when it refuses."""

import io
import json

import pytest

from hloscope import api
from hloscope.cli import main
from hloscope.errors import TargetError, UsageError
from hloscope.ir import parse_text
from hloscope.pipeline.findings import Basis, Unit
from hloscope.report import terminal
from hloscope.subjects import ModuleSubject

STEP = """HloModule step, is_scheduled=true

ENTRY e {
  a = bf16[1000,4000] parameter(0)
  b = bf16[4000,1000] parameter(1)
  d = bf16[1000,1000] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(f)/layer/dot_general" source_file="model.py" source_line=3}
  ROOT n = bf16[1000,1000] negate(d), \
metadata={op_name="jit(f)/layer/neg" source_file="model.py" source_line=4}
}
"""


def report_of(text, **options):
    return api.roofline(ModuleSubject(parse_text(text), "step.hlo"), **options)


def table(report, name):
    return next(table for table in report.tables if table.name == name)


def written(report):
    stream = io.StringIO()
    terminal.write(report, stream)
    return stream.getvalue()


def test_the_floor_is_a_lower_bound_and_said_to_be_one():
    report = report_of(STEP, chip="h100")
    rows = {row[0]: row[1] for row in table(report, "step").rows}
    # 8 GFLOP at 989.4 TFLOP/s take 8.09 us, 18 MB at 3.35232 TB/s 5.37 us; then 4 MB.
    floor = 8e9 / 989.4e12 + 4e6 / 3.35232e12
    assert rows["floor"].value == pytest.approx(floor)
    assert (rows["floor"].basis, rows["floor"].model) == (Basis.BOUNDED, "lower bound")
    assert rows["utilisation"].value == pytest.approx(8e9 / 989.4e12 / floor)
    assert report.summary == "A step takes at least 9.28 us on h100 (a floor)."
    assert "no prediction" in report.notes[0]
    assert report.trust is not None


def test_operations_come_with_work_bytes_intensity_bound_and_share():
    rows = {row[0]: row[1:] for row in table(report_of(STEP, chip="h100"), "operations").rows}
    flops, moved, intensity, bound, floor, share = rows["d"]
    assert (flops.value, moved.value, bound) == (8_000_000_000, 18_000_000, "compute")
    assert intensity.value == pytest.approx(8e9 / 18e6)
    assert rows["n"][3] == "memory"
    assert share.value + rows["n"][5].value == pytest.approx(1)
    assert floor.basis is Basis.BOUNDED


@pytest.mark.parametrize(
    ("by", "names"),
    [("op", ["d", "n"]), ("scope", ["jit(f)/layer"]), ("source", ["model.py:3", "model.py:4"])],
)
def test_operations_are_listed_by_what_was_asked_for(by, names):
    rows = table(report_of(STEP, chip="h100", by=by), "operations").rows
    assert [row[0] for row in rows] == names
    assert sum(row[1].value for row in rows) == 8_000_000_000


def test_a_list_that_is_cut_says_what_it_leaves_out():
    operations = table(report_of(STEP, chip="h100", top=1), "operations")
    assert [row[0] for row in operations.rows] == ["d"]
    assert operations.note.startswith("and 1 more, 12.9% of the floor")
    assert len(table(report_of(STEP, chip="h100", top=0), "operations").rows) == 2


def test_a_dump_needs_a_chip_and_the_error_names_the_option():
    with pytest.raises(UsageError) as refused:
        report_of(STEP)
    assert "--chip NAME" in refused.value.hint
    with pytest.raises(TargetError, match="no chip called 'h10'"):
        report_of(STEP, chip="h10")
    with pytest.raises(UsageError, match="`local`"):
        report_of(STEP, chip="local")
    with pytest.raises(UsageError, match="'colour'"):
        report_of(STEP, chip="h100", by="colour")


def test_a_chip_without_figures_leaves_times_unknown_and_says_why():
    report = report_of(STEP, chip="cpu")
    assert "not known" in report.summary
    assert all(row[5].value is None for row in table(report, "operations").rows)
    reasons = [row[2] for row in table(report, "unknown").rows]
    assert "no memory bandwidth of cpu is known" in reasons
    assert "no peak of cpu is known for bf16" in reasons


def test_a_module_that_is_not_scheduled_is_said_to_be_unfinished():
    assert any("not scheduled" in note for note in report_of(STEP, chip="h100").notes) is False
    draft = STEP.replace(", is_scheduled=true", "")
    assert any("not scheduled" in note for note in report_of(draft, chip="h100").notes)


@pytest.fixture
def recorded(fixtures_dir):
    return lambda name: str(fixtures_dir / "compiled" / "today" / f"{name}.hlo")


def test_a_tpus_own_estimate_stands_beside_the_floor(recorded):
    report = api.roofline(recorded("tpu_m_scan_fsdp"), chip="v5e")
    rows = {row[0]: row[1:] for row in table(report, "step").rows}
    estimate, what = rows["compiler's estimate"]
    assert estimate.basis is Basis.MODELLED
    assert "cycles at 1.50 GHz, for 16 of 35 operations" in what
    assert what.endswith("not a floor")
    operations = table(report, "operations")
    assert operations.columns[-1].title == "est."
    assert next(row for row in operations.rows if row[0] == "fusion.64 x8")[-1].value == (
        pytest.approx(141_232 * 8 / 1.5e9)
    )


def test_without_a_clock_cycles_stay_cycles(recorded):
    report = api.roofline(recorded("tpu_m_scan_fsdp"), chip="v6e")
    rows = {row[0]: row[1:] for row in table(report, "step").rows}
    cycles, what = rows["compiler's cycles"]
    assert cycles.unit is Unit.COUNT
    assert "clock is not known" in what
    assert table(report, "operations").columns[-1].unit is Unit.COUNT


def test_a_tpu_module_without_estimates_says_so(fixtures_dir):
    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    report = api.roofline(path, chip="v6e")
    rows = {row[0]: row[1:] for row in table(report, "step").rows}
    assert rows["compiler's estimate"][0].value is None


@pytest.mark.parametrize(
    ("name", "chip"),
    [("tpu_m_scan_fsdp", "v5e"), ("gpu_m_scan_db", "h100"), ("cpu_scan", "cpu")],
)
def test_the_report_fits_80_columns(recorded, name, chip):
    report = api.roofline(recorded(name), chip=chip)
    assert max(map(len, written(report).splitlines())) <= 80


def test_the_command_line_writes_the_same_as_json(recorded, capsys):
    arguments = ["roofline", recorded("tpu_m_coll"), "--chip", "v5e", "--top", "3", "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "hloscope.report/1"
    assert document["command"] == "roofline"
    operations = next(t for t in document["tables"] if t["name"] == "operations")
    assert len(operations["rows"]) == 3
    assert main(["roofline", recorded("tpu_m_coll")]) == 2
    assert "--chip" in capsys.readouterr().err


@pytest.mark.slow
def test_a_compiled_step_is_held_against_its_own_target_or_another(capsys):
    step = ["roofline", "--arch", "causal_transformer", "--preset", "smoke"]
    assert main([*step, "--json"]) == 0
    header = json.loads(capsys.readouterr().out)["header"]
    assert header["chip"].startswith("cpu ")
    assert main([*step, "--chip", "h100", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["header"]["chip"].startswith("h100 ")
    assert document["tables"][0]["rows"][0][1]["value"] > 0
