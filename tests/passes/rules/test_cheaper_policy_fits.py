"""HS907: rematerialization that the chip has memory enough to do without."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hloscope.chips import CHIPS, Chip
from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import RULES, call
from hloscope.pipeline.session import Session

# Layers whose last product is needed by the backward pass, for tanh is taken of it.
LAYERS = """
def block(x, w):
    return jnp.tanh(jnp.tanh(x @ w["up"]) @ w["down"]), None

def make(block):
    def loss(ws, x):
        x, _ = jax.lax.scan(block, x, ws)
        return (x ** 2).sum()

    ws = {"up": shape(4, 128, 256), "down": shape(4, 256, 128)}
    return Step(jax.grad(loss), (ws, shape(512, 128)))
"""
FULL = LAYERS + "step = make(jax.checkpoint(block))"
FORWARD = 4 * 2 * 2 * 512 * 128 * 256
RESULTS = 4 * 4 * 512 * (128 + 256)  # bytes of both products of all layers
NONE = LAYERS + "step = make(block)"
DOTS = LAYERS + ("step = make(jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable))")


def found_on(session: Session, memory: int | None):
    """The rule's findings if the chip had that much memory."""
    chip = replace(CHIPS["h100"], memory_bytes=memory)
    other = Session(session.subject, given={Chip: chip})
    rule = RULES["HS907"]
    return call(rule, other.arguments(rule.needs))


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_full_recomputation_on_an_empty_chip_is_found(found_in, target):
    (finding,) = found_in("HS907", FULL, target)
    evidence = {one.name: one.value for one in finding.evidence}
    assert evidence["FLOPs run again"] == FORWARD
    assert evidence["share of all products"] == pytest.approx(1 / 4)
    # Of some values the compiler also makes a second one on the way.
    assert RESULTS <= evidence["bytes to keep instead"] <= 2 * RESULTS
    assert evidence["seconds at the peak"] > 0
    assert finding.severity is Severity.WARNING
    assert finding.site.file == "train.py"


@pytest.mark.parametrize("code", [NONE, DOTS])
def test_steps_that_run_no_product_again_are_left_alone(found_in, code):
    assert found_in("HS907", code, "h100") == ()


def test_a_chip_that_what_is_kept_would_fill_is_left_alone(captured):
    session = captured(FULL, "h100")
    (finding,) = found_on(session, 1 << 40)
    evidence = {one.name: one.value for one in finding.evidence}
    enough = math.ceil((evidence["needed so far"] + evidence["bytes to keep instead"]) / 0.8)
    assert found_on(session, enough)
    assert found_on(session, enough - 8) == ()
    with pytest.raises(Unavailable, match="memory of h100 is not known"):
        found_on(session, None)
