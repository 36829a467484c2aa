"""A layer's count of what is kept, against the residuals of the whole step."""

from __future__ import annotations

import pytest
from oracles.training_steps import KEPT, MERGED, REMAT

from hloscope.drawing.checkpoints import find_layer
from hloscope.drawing.crossing import Crossing
from hloscope.drawing.step_flow import StepFlow
from hloscope.passes.residuals import Residuals
from hloscope.pipeline.session import Session

# Rotary positions, which neither pass computes and both read.
POSITIONS = KEPT.replace(
    "  dot.1 =",
    '  places = f32[4,8] iota(), iota_dimension=0, metadata={op_name="jit(f)/block/iota"}\n'
    '  sin.1 = f32[4,8] sine(places), metadata={op_name="jit(f)/block/sin"}\n'
    '  turned = f32[4,8] multiply(add.1, sin.1), metadata={op_name="jit(f)/jvp(block)/mul"}\n'
    "  dot.1 =",
).replace("multiply(dot.3, tanh.1)", "multiply(sin.1, tanh.1)")

SCANNED = """
import jax, jax.numpy as jnp
from hloscope import Step

def block(h, w):
    places = jnp.sin(jnp.arange(32.0))[:, None]
    scores = jax.nn.softmax((h * places) @ w, axis=-1)
    return jnp.tanh(scores * h + places), None

def loss(ws, h):
    h, _ = jax.lax.scan(RUN, h, ws)
    return (jnp.tanh(h) ** 2).sum()

shape = jax.ShapeDtypeStruct
step = Step(jax.grad(loss), (shape((3, 64, 64), "float32"), shape((32, 64), "float32")))
"""


def crossing(session: Session) -> tuple[Crossing, int]:
    step, residuals = session.get(StepFlow), session.find(Residuals)
    number = len(residuals.residuals) if residuals is not None else 0
    return Crossing.of(find_layer(step), step, residuals), number


@pytest.mark.parametrize("text", [KEPT, REMAT, POSITIONS])
def test_what_a_layer_keeps_and_what_crosses_elsewhere_are_all_residuals(session_of, text):
    found, residuals = crossing(session_of(text))
    assert len(found.kept) + found.elsewhere == residuals
    assert found.unnamed == 0


@pytest.mark.parametrize(("run", "target"), [("block", "cpu"), ("jax.checkpoint(block)", "h100")])
def test_so_they_are_in_a_scan_that_was_compiled(tmp_path, need_target, run, target):
    import hloscope

    need_target(target)
    file = tmp_path / "train.py"
    file.write_text(SCANNED.replace("RUN", run))
    found, residuals = crossing(Session(hloscope.load(f"{file}:step", target=target)))
    assert found.kept
    assert len(found.kept) + found.elsewhere == residuals


def test_what_neither_pass_computes_is_no_residual_and_said_apart(session_of):
    found, _ = crossing(session_of(POSITIONS))
    assert [maker.name for maker, _ in found.neither] == ["sin.1"]
    assert "sin.1" not in {maker.name for maker, _ in found.kept}
    assert "beside 1 that neither pass computes (128 B)" in found.said()


def test_what_xla_merged_crosses_under_the_name_of_the_repetition(session_of):
    found, residuals = crossing(session_of(MERGED))
    assert found.unnamed == len(found.kept) + found.elsewhere - residuals
    assert found.unnamed == 1
    assert "1 of them left out by hloscope memory" in found.said()


def test_in_a_module_without_a_schedule_only_the_layer_is_counted(session_of):
    found, _ = crossing(session_of(KEPT.replace(", is_scheduled=true", "")))
    assert found.elsewhere is None
    assert found.said() == "2 arrays kept, 256 B"
