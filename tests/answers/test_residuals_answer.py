"""The tables of what is kept for the backward pass, by layer and by name."""

import json

import pytest

import hloscope
from hloscope.cli.run import run
from hloscope.pipeline.findings import Basis

LAYERS, TOKENS, WIDTH = 3, 16, 32

PROGRAM = f"""
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from hloscope import Step

def block(h, w):
    kept = checkpoint_name(h @ w, "kept")
    again = checkpoint_name(jnp.sin(kept), "again")
    return jnp.tanh(again), None

names = jax.checkpoint_policies.save_only_these_names("kept")
block = jax.checkpoint(block, policy=names, prevent_cse=False)

def loss(ws, h):
    h, _ = jax.lax.scan(block, h, ws)
    return (h * h).sum()

shape = jax.ShapeDtypeStruct
step = Step(
    jax.grad(loss),
    (
        shape(({LAYERS}, {WIDTH}, {WIDTH}), "float32"),
        shape(({TOKENS}, {WIDTH}), "float32"),
    ),
)
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    return f"{file}:step"


@pytest.fixture
def report(program):
    return hloscope.memory(program)


def rows(report, name):
    (table,) = [table for table in report.tables if table.name == name]
    return table.rows


def test_every_name_is_listed_with_its_fate_and_its_bytes(report):
    kept, again, other = rows(report, "named residuals")
    value = f"{LAYERS} x f32[{TOKENS},{WIDTH}]"
    assert kept[:3] == ("kept", value, "kept")
    assert (kept[3].value, kept[4].value) == (1, LAYERS * TOKENS * WIDTH * 4)
    assert kept[4].basis is Basis.MODELLED
    assert kept[5] == "train.py:7"
    assert again[:3] == ("again", value, "recomputed")
    assert (again[3].value, again[4].value) == (0, 0)
    assert other[0] == "(no name)"  # the input of each layer, the result of the last


def test_a_stack_is_split_into_its_layers(report):
    (stacked,) = [row for row in rows(report, "residual layers") if row[0].startswith("a loop")]
    assert stacked[0] == f"a loop of {LAYERS} iterations"
    assert stacked[1].value == 2  # the input of each layer, and what is named
    assert stacked[2].value == 2 * LAYERS * TOKENS * WIDTH * 4
    assert stacked[3].value == 2 * TOKENS * WIDTH * 4


def test_the_policies_of_the_step_are_named(report):
    assert any("save_only_these_names(kept)" in note for note in report.notes)


def test_the_document_names_the_points(program, capsys):
    assert run(["memory", program, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (table,) = [t for t in document["tables"] if t["name"] == "named residuals"]
    assert [row[0] for row in table["rows"]] == ["kept", "again", "(no name)"]


def test_a_bare_module_says_why_it_knows_no_names(tmp_path):
    file = tmp_path / "m.hlo"
    file.write_text(
        """
        HloModule m, is_scheduled=true
        ENTRY e {
          x = f32[8] parameter(0)
          h = f32[8] tanh(x), metadata={op_name="jit(f)/jvp()/tanh"}
          ROOT b = f32[8] multiply(h, x), metadata={op_name="jit(f)/transpose(jvp())/mul"}
        }
        """
    )
    report = hloscope.memory(file)
    assert not any(table.name == "named residuals" for table in report.tables)
    assert any("have a name is not known: a bare module" in note for note in report.notes)
