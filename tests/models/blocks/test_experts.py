"""Experts against a loop over tokens, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from hloscope.models.blocks import experts
from hloscope.models.blocks.experts import Experts

BATCH, TOKENS, WIDTH, HIDDEN, NUMBER, CHOSEN = 2, 10, 6, 8, 4, 2


def _experts(route):
    return Experts(
        WIDTH,
        HIDDEN,
        number=NUMBER,
        chosen=CHOSEN,
        route=route,
        dtype=jnp.float32,
        rngs=nnx.Rngs(0),
    )


def _tokens():
    return jax.random.normal(jax.random.key(1), (BATCH, TOKENS, WIDTH))


def _token_by_token(layer, tokens, places=TOKENS * CHOSEN):
    """What the layer must put out, and the load, by a loop; and how many choices found no place."""
    router, gate, up, down = (
        np.asarray(part.kernel[...], np.float64)
        for part in (layer.router, layer.gate, layer.up, layer.down)
    )
    tokens = np.asarray(tokens, np.float64)
    mixed, loads, lost = np.zeros_like(tokens), [], 0
    for sequence, out in zip(tokens, mixed, strict=True):
        likely = np.exp(sequence @ router)
        likely /= likely.sum(-1, keepdims=True)
        best = np.argsort(-likely, axis=-1)[:, :CHOSEN]
        taken = np.zeros(NUMBER, int)
        for rank in range(CHOSEN):
            for token, vector in enumerate(sequence):
                expert = best[token, rank]
                taken[expert] += 1
                if taken[expert] > places:
                    lost += 1
                    continue
                opened = vector @ gate[expert]
                hidden = opened / (1 + np.exp(-opened)) * (vector @ up[expert])
                weight = likely[token, expert] / likely[token, best[token]].sum()
                out[token] += weight * (hidden @ down[expert])
        shares = taken / (TOKENS * CHOSEN)
        loads.append(NUMBER * np.sum(shares * likely.mean(0)))
    return mixed, loads, lost


@pytest.mark.parametrize("route", ["ragged", "dense"])
def test_each_token_gets_its_likeliest_experts(route):
    layer, tokens = _experts(route), _tokens()
    mixed, load = layer(tokens)
    wanted, wanted_load, _ = _token_by_token(layer, tokens)
    np.testing.assert_allclose(mixed, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(load, wanted_load, rtol=1e-5)


@pytest.mark.parametrize(("factor", "places", "loses"), [(0.5, 3, True), (4.0, 20, False)])
def test_what_finds_no_place_with_an_expert_passes_by(factor, places, loses, monkeypatch):
    monkeypatch.setattr(experts, "_CAPACITY", factor)
    layer, tokens = _experts("capacity"), _tokens()
    mixed, load = layer(tokens)
    wanted, wanted_load, lost = _token_by_token(layer, tokens, places)
    assert bool(lost) == loses
    np.testing.assert_allclose(mixed, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(load, wanted_load, rtol=1e-5)


@pytest.mark.parametrize("route", ["dense", "capacity"])
def test_every_route_has_the_gradients_of_the_sorted_one(route, monkeypatch):
    monkeypatch.setattr(experts, "_CAPACITY", float(NUMBER))
    tokens = _tokens()

    def gradients(route):
        graphdef, params = nnx.split(_experts(route))

        def loss(params, tokens):
            mixed, load = nnx.merge(graphdef, params)(tokens)
            return jnp.sum(jnp.sin(mixed)) + jnp.sum(load)

        return jax.tree.leaves(jax.grad(loss, argnums=(0, 1))(params, tokens))

    for got, wanted in zip(gradients(route), gradients("ragged"), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
