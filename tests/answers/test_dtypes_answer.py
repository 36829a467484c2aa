import io
import json

import pytest

import hloscope
from hloscope.answers.dtypes import report_dtypes
from hloscope.chips import CHIPS, Chip
from hloscope.cli.run import run
from hloscope.errors import UsageError
from hloscope.ir import parse_text
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session
from hloscope.report.json import report_document
from hloscope.report.terminal import write
from hloscope.subjects import ModuleSubject

MIXED = """
HloModule jit_step
ENTRY e {
  x = bf16[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  a = bf16[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = bf16[64,64] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,64] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(step)/head/dot_general" source_file="model.py" source_line=12}
  ROOT t = (bf16[64,64], f32[64,64]) tuple(b, c)
}
"""


@pytest.fixture
def step(tmp_path, monkeypatch):
    """A dump in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "step.hlo"
    file.write_text(MIXED)
    return file


def table(report, name):
    return next(table for table in report.tables if table.name == name)


def test_products_are_listed_by_their_types_with_flops_and_share(step):
    report = hloscope.dtypes(step)
    one = 2 * 64**3
    rows = [
        (row[0], row[1], row[2], row[3].value, row[4].value, row[5].value)
        for row in table(report, "products").rows
    ]
    assert rows == [
        ("bf16", "bf16", "bf16", 2, 2 * one, pytest.approx(2 / 3)),
        ("f32", "f32", "f32", 1, one, pytest.approx(1 / 3)),
    ]
    assert report.summary == "Products: 66.7% in bf16, 33.3% in f32. 1 finding on types."
    assert [finding.code for finding in report.findings] == ["HS401"]


def test_findings_of_other_classes_are_not_among_them(step):
    assert {finding.category.number for finding in hloscope.dtypes(step).findings} == {4}


def test_it_fits_eighty_columns(fixtures_dir):
    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    stream = io.StringIO()
    write(hloscope.dtypes(path), stream, width=80, color=False)
    assert max(len(line) for line in stream.getvalue().splitlines()) <= 80


def test_every_share_of_the_products_of_a_recorded_step_adds_up(fixtures_dir):
    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    rows = table(hloscope.dtypes(path), "products").rows
    assert sum(row[5].value for row in rows) == pytest.approx(1)


def test_a_suppression_in_the_project_is_honoured_and_reported(step, capsys):
    (step.parent / "pyproject.toml").write_text('[tool.hloscope]\nignore = ["HS401:head"]\n')
    assert run(["dtypes", "step.hlo", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["findings"] == []
    (left_out,) = document["suppressed"]
    assert (left_out["by"], left_out["finding"]["code"]) == ("HS401:head", "HS401")
    assert any("suppressed by ignore = 'HS401:head'" in note for note in document["notes"])


def test_the_audit_does_not_fail_on_what_is_suppressed(step, capsys):
    assert run(["audit", "step.hlo", "--fail-on", "warning"]) == 1
    other = step.parent / "audit.toml"
    other.write_text('ignore = ["HS401:model.py:12"]\n')
    assert run(["audit", "step.hlo", "--fail-on", "warning", "--config", str(other)]) == 0
    assert "1 finding suppressed by ignore = 'HS401:model.py:12'" in capsys.readouterr().out


def test_a_threshold_of_the_project_reaches_the_rule(step):
    (step.parent / "pyproject.toml").write_text("[tool.hloscope]\nproduct_flops_share = 0.5\n")
    assert hloscope.dtypes(step, config="pyproject.toml").findings == ()
    assert len(hloscope.dtypes(step).findings) == 1  # the API reads no file by itself


def test_a_wrong_key_stops_the_command_before_it_compiles(step, capsys):
    (step.parent / "pyproject.toml").write_text("[tool.hloscope]\nproduct_share = 0.5\n")
    assert run(["audit", "step.hlo"]) == 2
    said = capsys.readouterr().err
    assert "pyproject.toml: [tool.hloscope] has no key 'product_share'" in said
    assert "product_flops_share" in said
    with pytest.raises(UsageError):
        hloscope.audit(step, config="pyproject.toml")


def test_a_check_honours_suppressions_and_never_leaves_its_rules_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.hlo").write_text("""
HloModule jit_step
ENTRY e {
  s = f32[64] parameter(0), metadata={op_name="state.params['w']"}
  m = f32[64] parameter(1), metadata={op_name="state.opt_state['mu']"}
  a = f32[64] add(s, m)
  ROOT t = (f32[64]) tuple(a)
}
""")
    (tmp_path / "a.toml").write_text('select = ["HS4"]\n')
    assert not hloscope.check("donation", "step.hlo", config="a.toml").passed
    (tmp_path / "b.toml").write_text('ignore = ["HS701"]\n')
    report = hloscope.check("donation", "step.hlo", config="b.toml")
    assert report.passed
    assert report_document(report)["suppressed"]


PROMOTING = """
import jax, jax.numpy as jnp, numpy as np
from hloscope import Step

def f(x):
    h = jnp.tanh(x * 2.0)
    h = h * np.float32(3)
    return jnp.exp(h)

step = Step(f, (jax.ShapeDtypeStruct((256, 512), "float16"),))
"""


def test_promotions_come_from_the_jaxpr_and_of_a_dump_from_the_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROMOTING)
    subject = hloscope.load("train.py:step")
    found = table(hloscope.dtypes(subject), "promotions")
    (row,) = found.rows
    assert (row[0], row[1], row[4]) == ("f16 to f32", "train.py:7", "number 3, in mul")
    assert row[2].value == 256 * 512
    assert "jaxpr is not known" not in found.note

    subject.artifact.save("step.hloscope")
    assert table(hloscope.dtypes("step.hloscope"), "promotions") == found

    (tmp_path / "step.hlo").write_text(subject.artifact.hlo_text)
    guessed = table(hloscope.dtypes("step.hlo"), "promotions")
    (row,) = guessed.rows
    assert (row[1], row[4]) == ("train.py:7", "number 3, in multiply")
    assert "the jaxpr is not known" in guessed.note


def test_what_xla_converts_for_a_device_comes_after_the_programs_own_pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.hlo").write_text("""
HloModule m
ENTRY e {
  x = bf16[4096] parameter(0)
  y = f32[16] parameter(1)
  a = f32[4096] convert(x)
  b = bf16[4096] convert(a)
  c = bf16[16] convert(y), metadata={op_name="jit(f)/convert_element_type"
    source_file="m.py" source_line=3}
  d = f32[16] convert(c), metadata={op_name="jit(f)/convert_element_type"
    source_file="m.py" source_line=4}
  ROOT t = (bf16[4096], f32[16]) tuple(b, d)
}
""")
    found = table(hloscope.dtypes("step.hlo"), "round_trips")
    assert [row[1:3] for row in found.rows] == [("program", "m.py:4"), ("XLA", "-")]
    assert "the program did not ask for them" in found.note


def test_float8_on_a_chip_without_the_unit_saves_memory_only():
    load_passes()
    subject = ModuleSubject(parse_text(MIXED.replace("bf16", "f8e4m3fn")), "dump")

    def told(chip):
        report = report_dtypes(Session(subject, given={Chip: CHIPS[chip]}), subject)
        lacks = [note for note in report.notes if note.startswith("the chip has no unit for")]
        return lacks, table(report, "quantization").title

    (note,), title = told("v5e")
    assert "for f8e4m3fn: it multiplies such operands in bfloat16" in note
    assert title == "Quantized: memory is saved, no product runs in eight bits"
    assert told("h100") == (
        [],
        "Quantized: products run in eight bits, with no conversions in memory",
    )
