"""HS801: one block, spelled out for every layer."""

from __future__ import annotations

import pytest

from hloscope.passes.layer_chains import LayerChains
from hloscope.passes.repeated_blocks import RepeatedBlocks
from hloscope.pipeline.rules import Limits

LAYERS = """
def block(x, w):
    h = jax.nn.gelu(x @ w["up"]) @ w["down"]
    return x + jax.nn.standardize(h, axis=-1)

def unrolled(ws, x):
    for w in ws:
        x = block(x, w)
    return (x ** 2).sum()

def looped(ws, x):
    x, _ = jax.lax.scan(lambda x, w: (block(x, w), None), x, ws)
    return (x ** 2).sum()

def weights(*front):
    return {"up": shape(*front, 64, 256), "down": shape(*front, 256, 64)}

x = shape(32, 64)
"""
UNROLLED = LAYERS + "step = Step(jax.grad(unrolled), ([weights() for _ in range(12)], x))"
LOOPED = LAYERS + "step = Step(jax.grad(looped), (weights(12), x))"
# Each layer rolls by another number, so that XLA's fusions are alike in none of them.
ROLLED = """
def block(x, w, n):
    h = jnp.roll(x @ w["up"], n, 0) + jnp.roll(x, n, 1)[:, :1]
    h = jnp.roll(jax.nn.gelu(h), n, 1) @ w["down"]
    return x + jnp.roll(jax.nn.standardize(h, axis=-1), n, 0)

def unrolled(ws, x):
    for n, w in enumerate(ws):
        x = block(x, w, n + 1)
    return (x ** 2).sum()

w = {"up": shape(64, 256), "down": shape(256, 64)}
step = Step(jax.grad(unrolled), ([w] * LAYERS, shape(32, 64)))
"""
ACCUMULATED = """
def loss(w, x):
    return (jnp.tanh(jnp.tanh(x @ w) @ w.T) ** 2).sum()

def accumulated(w, x):
    return sum(jax.grad(loss)(w, part) for part in jnp.split(x, 8))

step = Step(accumulated, (shape(64, 64), shape(64, 64)))
"""
ANY_SIZE = Limits(repeated_instructions=100)


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_layers_in_a_python_loop_are_found_and_counted(found_in, target):
    (finding,) = found_in("HS801", UNROLLED, target, ANY_SIZE)
    # The first layer's input needs no gradient, so compilers may leave less of it.
    assert finding.evidence[0].value in (11, 12)
    assert finding.site.file == "train.py"
    assert finding.cost.name == "compile saved"
    assert 0 < finding.cost.value < finding.evidence[-1].value


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_layers_in_a_scan_are_left_alone(found_in, target):
    assert found_in("HS801", LOOPED, target, ANY_SIZE) == ()


def test_layers_are_found_that_are_compiled_in_different_ways(captured, told):
    session = captured(ROLLED.replace("LAYERS", "8"), "h100", ANY_SIZE)
    assert session.get(RepeatedBlocks).saved < 0.6
    (finding,) = told("HS801", session)
    assert finding.evidence[0].value in (7, 8)
    assert finding.site.file == "train.py"


def test_three_layers_are_left_alone(found_in):
    assert found_in("HS801", ROLLED.replace("LAYERS", "3"), limits=ANY_SIZE) == ()


def test_steps_that_do_not_depend_on_each_other_are_found_too(captured, told):
    session = captured(ACCUMULATED, limits=Limits(repeated_instructions=50))
    assert session.get(LayerChains).saved == 0
    (finding,) = told("HS801", session)
    assert finding.evidence[0].value == 8


def test_small_programs_are_left_alone(found_in):
    assert found_in("HS801", UNROLLED, limits=Limits(repeated_instructions=1_000_000)) == ()


def test_a_recorded_step_of_32_layers_is_counted_right(findings_of, fixtures_dir):
    text = (fixtures_dir / "hlo" / "gpu_llama31_8b_1x8_unscheduled.hlo").read_text()
    (finding,) = findings_of("HS801", text)
    assert finding.evidence[0].value == 32
    assert finding.cost.name == "instructions repeated"


@pytest.mark.parametrize(
    "name", ["tpu_v6e8_llama3_8b_train_step", "cpu_resnet50_keras", "cpu_diffrax"]
)
def test_recorded_steps_without_such_layers_are_left_alone(findings_of, fixtures_dir, name):
    assert findings_of("HS801", (fixtures_dir / "hlo" / f"{name}.hlo").read_text()) == ()
