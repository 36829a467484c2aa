"""The loss of the next token: in chunks it is the same loss, of smaller arrays."""

import jax
import numpy as np
import pytest

from hloscope.capture.jaxpr_flops import count_jaxpr
from hloscope.errors import UsageError
from hloscope.models import registry
from hloscope.models.next_token import next_token_loss

BATCH, TOKENS, WIDTH, WORDS = 3, 12, 16, 40


def _operands():
    keys = jax.random.split(jax.random.key(0), 3)
    return (
        jax.random.normal(keys[0], (BATCH, TOKENS, WIDTH)),
        jax.random.normal(keys[1], (WORDS, WIDTH)),
        jax.random.randint(keys[2], (BATCH, TOKENS), 0, WORDS),
    )


def _loss(chunks):
    def loss(features, matrix, targets):
        return next_token_loss(features, matrix, targets, chunks=chunks)

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))


@pytest.mark.parametrize("chunks", [1, 3])
def test_the_loss_and_its_gradients_are_those_of_the_formula(chunks):
    features, matrix, targets = _operands()
    value, gradients = _loss(chunks)(features, matrix, targets)
    features, matrix = (np.asarray(array, np.float64) for array in (features, matrix))
    logits = features @ matrix.T
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    likely = powers / powers.sum(-1, keepdims=True)
    right = np.eye(WORDS)[np.asarray(targets)]
    assert float(value) == pytest.approx(-np.mean(np.log((likely * right).sum(-1))), rel=1e-5)
    error = (likely - right) / targets.size
    for got, wanted in zip(
        gradients, (error @ matrix, np.einsum("btv,btc->vc", error, features)), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("chunks", [1, 3])
def test_the_largest_logits_are_those_of_one_chunk(chunks):
    jaxpr = jax.make_jaxpr(_loss(chunks))(*_operands()).jaxpr
    assert max(_with_words(jaxpr)) == BATCH * TOKENS * WORDS // chunks


def _with_words(jaxpr):
    """Sizes of the arrays of as many channels as there are words."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            if variable.aval.shape[-1:] == (WORDS,):
                yield variable.aval.size
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _with_words(inner)


@pytest.mark.parametrize("name", ["causal_transformer", "moe_transformer", "ssm"])
def test_chunks_that_do_not_divide_the_tokens_are_refused(name):
    with pytest.raises(UsageError, match="5 chunks do not divide a sequence of 32 tokens") as error:
        registry.get(name).build("smoke", {"head_chunks": "5"})
    assert error.value.place == "--set head_chunks=5"


def test_the_step_computes_a_chunks_logits_again_and_nothing_else(traced):
    whole, chunked = (
        count_jaxpr(traced("causal_transformer", "smoke", **options)).total
        for options in ({}, {"head_chunks": "4"})
    )
    # Batch, tokens, width and vocabulary of ``smoke``.
    assert chunked.nominal - whole.nominal == 2 * 8 * 32 * 64 * 256
