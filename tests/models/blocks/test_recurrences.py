"""Chunked recurrences against the same ones in float64, token by token: values and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from quick_compile import QUICK

from hloscope.models.blocks.gated_delta_rule import gated_delta_rule
from hloscope.models.blocks.recurrent_cell import Decay, ShortConvolution
from hloscope.models.blocks.state_space_duality import state_space_duality

BATCH, TOKENS, HEADS, STATE, WIDTH = 2, 24, 3, 4, 5


def _dual_by_token(query, key, value, decay):
    def token(state, inputs):
        query, key, value, decay = inputs
        state = state * jnp.exp(decay)[..., None, None] + jnp.einsum("bn,bhd->bhnd", key, value)
        return state, jnp.einsum("bn,bhnd->bhd", query, state)

    start = jnp.zeros((BATCH, HEADS, STATE, WIDTH), value.dtype)
    return _along(token, start, query, key, value, decay)


def _delta_by_token(query, key, value, decay, rate):
    eye = jnp.eye(STATE, dtype=value.dtype)

    def token(state, inputs):
        query, key, value, decay, rate = inputs
        kept = eye - rate[..., None, None] * key[..., :, None] * key[..., None, :]
        state = jnp.exp(decay)[..., None, None] * (kept @ state)
        state += rate[..., None, None] * key[..., :, None] * value[..., None, :]
        return state, jnp.einsum("bhn,bhnd->bhd", query, state)

    start = jnp.zeros((BATCH, HEADS, STATE, WIDTH), value.dtype)
    return _along(token, start, query, key, value, decay, rate)


def _along(token, start, *inputs):
    _, outputs = jax.lax.scan(token, start, tuple(jnp.moveaxis(x, 1, 0) for x in inputs))
    return jnp.moveaxis(outputs, 0, 1)


def _dual_operands(draw, strongest):
    shape = (BATCH, TOKENS)
    return (
        draw.standard_normal((*shape, STATE)),
        draw.standard_normal((*shape, STATE)),
        draw.standard_normal((*shape, HEADS, WIDTH)),
        -draw.uniform(0, strongest, (*shape, HEADS)),
    )


def _delta_operands(draw, strongest):
    shape = (BATCH, TOKENS, HEADS)
    keys = draw.standard_normal((*shape, STATE))
    return (
        draw.standard_normal((*shape, STATE)),
        keys / np.linalg.norm(keys, axis=-1, keepdims=True),
        draw.standard_normal((*shape, WIDTH)),
        -draw.uniform(0, strongest, shape),
        draw.uniform(0, 1, shape),
    )


CELLS = {
    "dual": (state_space_duality, _dual_by_token, _dual_operands),
    "delta": (gated_delta_rule, _delta_by_token, _delta_operands),
}


@functools.cache
def _compiled(cell, chunk=None):
    """Output and gradients, given the output's cotangent and the operands."""

    def run(cotangent, *operands):
        called = cell if chunk is None else functools.partial(cell, chunk=chunk)
        output, pull = jax.vjp(called, *operands)
        return (output, *pull(cotangent))

    return jax.jit(run, compiler_options=QUICK)


def _agree(cell, by_token, operands, share):
    """Differ by no more than a share of the largest number of each array."""
    cotangent = np.random.default_rng(7).standard_normal((BATCH, TOKENS, HEADS, WIDTH))
    rounded = [x.astype(np.float32) for x in (cotangent, *operands)]
    got = _compiled(cell, 8)(*rounded)
    with jax.enable_x64(True):
        wanted = _compiled(by_token)(*(x.astype(np.float64) for x in rounded))
        assert {x.dtype for x in wanted} == {jnp.dtype("float64")}
        wanted = [np.asarray(x) for x in wanted]
    for one, other in zip(got, wanted, strict=True):
        assert np.abs(other).max() > 0.1
        np.testing.assert_allclose(one, other, rtol=0, atol=share * np.abs(other).max())


@pytest.mark.parametrize("name", CELLS)
def test_chunks_compute_what_the_recurrence_does_token_by_token(name):
    cell, by_token, operands = CELLS[name]
    _agree(cell, by_token, operands(np.random.default_rng(0), 1.0), 2e-6)


@pytest.mark.parametrize("name", CELLS)
def test_a_state_that_is_forgotten_at_once_leaves_numbers_and_their_gradients(name):
    # Over a chunk the decays sum to up to 480: the inverse of what is left is no
    # float32, and the sum itself is known to 3e-5 in float32.
    cell, by_token, operands = CELLS[name]
    _agree(cell, by_token, operands(np.random.default_rng(1), 60.0), 6e-5)


def test_keys_that_are_all_alike_do_not_cancel():
    # Powers of what is inverted then grow like binomials, of 63 at most 9e17.
    key = np.zeros((1, 128, 1, STATE), np.float32)
    key[..., 0] = 1
    value = np.random.default_rng(2).standard_normal((1, 128, 1, WIDTH)).astype(np.float32)
    decay, rate = np.zeros((1, 128, 1), np.float32), np.ones((1, 128, 1), np.float32)
    # Each token overwrites the one before: what is asked for is its own value.
    run = jax.jit(functools.partial(gated_delta_rule, chunk=64), compiler_options=QUICK)
    got = run(key, key, value, decay, rate)
    np.testing.assert_allclose(got, value, atol=1e-4)


@pytest.mark.parametrize("name", CELLS)
def test_bfloat16_operands_give_bfloat16_near_the_float32_result(name):
    cell, _, operands = CELLS[name]
    drawn = [jnp.asarray(x, jnp.bfloat16) for x in operands(np.random.default_rng(3), 1.0)]
    gates = [x.astype(jnp.float32) for x in drawn[3:]]
    run = jax.jit(functools.partial(cell, chunk=8), compiler_options=QUICK)
    got = run(*drawn[:3], *gates)
    wanted = run(*(x.astype(jnp.float32) for x in drawn[:3]), *gates)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        got.astype(jnp.float32), wanted, atol=0.02 * float(jnp.abs(wanted).max())
    )


@pytest.mark.parametrize("name", CELLS)
def test_tokens_that_are_no_whole_chunks_are_refused(name):
    cell, _, operands = CELLS[name]
    with pytest.raises(ValueError, match="24 tokens are no whole chunks of 16"):
        cell(*operands(np.random.default_rng(0), 1.0), chunk=16)


def test_chunks_of_the_delta_rule_are_halved_to_single_tokens():
    with pytest.raises(ValueError, match="a power of two"):
        gated_delta_rule(*_delta_operands(np.random.default_rng(0), 1.0), chunk=12)


def test_a_short_convolution_sees_its_last_tokens_and_no_later_one():
    convolution = ShortConvolution(2, 3, dtype=jnp.float32, rngs=nnx.Rngs(0))
    tokens = np.random.default_rng(4).standard_normal((1, 6, 2)).astype(np.float32)
    taps = np.asarray(convolution.taps[...])
    wanted = np.zeros_like(tokens)
    for t in range(6):
        for back in range(min(t + 1, 3)):
            wanted[:, t] += taps[2 - back] * tokens[:, t - back]
    np.testing.assert_allclose(convolution(tokens), wanted / (1 + np.exp(-wanted)), atol=1e-6)


def test_steps_in_time_start_between_a_thousandth_and_a_tenth():
    steps, decay = Decay(5)(jnp.zeros((1, 5)))
    np.testing.assert_allclose(steps[0], np.geomspace(1e-3, 1e-1, 5), rtol=1e-4)
    np.testing.assert_allclose(decay[0], -steps[0] * np.linspace(16, 1, 5), rtol=1e-4)
