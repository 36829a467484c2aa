"""HS801: one block, spelled out for every layer."""

from __future__ import annotations

import pytest

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
