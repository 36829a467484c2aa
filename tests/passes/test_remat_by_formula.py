"""What policies keep and run again, against arithmetic on the sizes of a decoder.

A scan of post-norm decoder layers in float32, so that the backward pass needs every
product of the forward pass: recomputing a layer in full is its whole forward pass.
"""

from __future__ import annotations

import pytest

from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.remat import Remat
from hloscope.passes.remat_verdict import RematOutcome, RematVerdict
from hloscope.passes.residuals import Residuals
from hloscope.pipeline.session import Session

LAYERS, BATCH, LENGTH, WIDTH, HIDDEN, HEADS = 4, 2, 64, 128, 512, 4

DECODER = f"""
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from hloscope import Step

L, B, S, W, F, H = {LAYERS}, {BATCH}, {LENGTH}, {WIDTH}, {HIDDEN}, {HEADS}

def layer(h, p):
    q, k, v = (jnp.einsum("bsw,whd->bshd", h, p[name]) for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, k) / 8.0, axis=-1)
    mixed = jnp.einsum("bhst,bthd->bshd", scores, v)
    h = jnp.tanh(h + checkpoint_name(jnp.einsum("bshd,hdw->bsw", mixed, p["o"]), "attention"))
    return jnp.tanh(h + jnp.tanh(h @ p["up"]) @ p["down"]), None

def loss(layer):
    def of(params, x):
        h, _ = jax.lax.scan(layer, x, params)
        return (h ** 2).sum()
    return of

def shape(*sizes):
    return jax.ShapeDtypeStruct((L, *sizes), jnp.float32)

params = {{name: shape(W, H, W // H) for name in "qkv"}}
params |= {{"o": shape(H, W // H, W), "up": shape(W, F), "down": shape(F, W)}}
policies = jax.checkpoint_policies
wraps = {{
    "none": layer,
    "full": jax.checkpoint(layer),
    "names": jax.checkpoint(layer, policy=policies.save_only_these_names("attention")),
    "dots": jax.checkpoint(layer, policy=policies.dots_saveable),
}}
x = jax.ShapeDtypeStruct((B, S, W), jnp.float32)
none, full, names, dots = (Step(jax.grad(loss(wraps[key])), (params, x)) for key in wraps)
"""

TOKENS = LAYERS * BATCH * LENGTH
ARRAY = TOKENS * WIDTH * 4
"""Bytes of one activation of the model's width, of all layers."""

SCORES = LAYERS * BATCH * HEADS * LENGTH**2 * 4
PROJECTION = 2 * TOKENS * WIDTH**2
MIXING = 2 * LAYERS * BATCH * HEADS * LENGTH**2 * (WIDTH // HEADS)
FEEDING = 2 * TOKENS * WIDTH * HIDDEN
FORWARD = 4 * PROJECTION + 2 * MIXING + 2 * FEEDING

# The layer's input; what is named; the results of all eight products. The sum of
# squares at the end keeps the last layer's output, once and not by layer.
KEPT = {
    "full": ARRAY,
    "names": 2 * ARRAY,
    "dots": ARRAY + 6 * ARRAY + SCORES + ARRAY * HIDDEN // WIDTH,
}
AGAIN = {"full": FORWARD, "names": FORWARD - PROJECTION, "dots": 0}
END = BATCH * LENGTH * WIDTH * 4


@pytest.fixture(scope="module")
def decoder(tmp_path_factory, need_target):
    """A session over the decoder with one policy, each compiled once."""
    import hloscope
    from hloscope.pipeline.loading import load_passes

    load_passes()
    file = tmp_path_factory.mktemp("decoder") / "decoder.py"
    file.write_text(DECODER)
    done: dict[tuple[str, str], Session] = {}

    def get(policy: str, target: str) -> Session:
        need_target(target)
        if (policy, target) not in done:
            done[policy, target] = Session(hloscope.load(f"{file}:{policy}", target=target))
        return done[policy, target]

    return get


@pytest.mark.parametrize("target", ["cpu", "h100"])
@pytest.mark.parametrize("policy", KEPT)
def test_residuals_are_what_the_policy_keeps_of_each_layer(decoder, policy, target):
    kept = decoder(policy, target).get(Residuals).total
    assert kept == pytest.approx(KEPT[policy] + END, rel=0.05)
    everything = decoder("none", target).get(Residuals).total
    assert everything > decoder("dots", target).get(Residuals).total > KEPT["names"]


@pytest.mark.parametrize("target", ["cpu", "h100"])
@pytest.mark.parametrize("policy", AGAIN)
def test_recomputation_is_the_forward_pass_without_what_is_kept(decoder, policy, target):
    session = decoder(policy, target)
    assert session.get(RematVerdict).again_flops == pytest.approx(AGAIN[policy], rel=0.05)
    assert session.get(Remat).flops == pytest.approx(AGAIN[policy], rel=0.05)
    # Forward, twice as much backward, and what runs again.
    total = session.get(FlopLedger).total.nominal
    assert total == pytest.approx(3 * FORWARD + AGAIN[policy], rel=0.05)
    survived = RematOutcome.SURVIVED if AGAIN[policy] else RematOutcome.KEPT_ALL
    assert session.get(RematVerdict).outcome is survived


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_without_a_checkpoint_nothing_runs_again(decoder, target):
    session = decoder("none", target)
    assert session.get(FlopLedger).total.nominal == pytest.approx(3 * FORWARD, rel=0.05)
    assert session.get(RematVerdict).outcome is RematOutcome.NONE
