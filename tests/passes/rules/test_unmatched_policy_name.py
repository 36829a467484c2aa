"""HS908: names in a remat policy that no value of the step has."""

from __future__ import annotations

import pytest

from hloscope.pipeline.findings import Severity

STEP = """
from jax.ad_checkpoint import checkpoint_name

policies = jax.checkpoint_policies

def block(x, w):
    up = checkpoint_name(x @ w, "up_proj")
    return checkpoint_name(jnp.tanh(jnp.tanh(up) @ w), "out")

def mine(primitive, *_, **params):
    return primitive.name == "name" and params["name"] in ("up_proj", "out")

block = jax.checkpoint(block, policy={policy})

def loss(w, x):
    return (block(block(x, w), w) ** 2).sum()

step = Step(jax.grad(loss), (shape(64, 64), shape(256, 64)))
"""


def policy(words: str) -> str:
    return STEP.format(policy=words)


def test_a_misspelt_name_is_found_with_what_it_may_be_meant_to_be(found_in):
    (finding,) = found_in("HS908", policy('policies.save_only_these_names("up_prj")'))
    assert (
        finding.message == "no value of the step has the policy's name 'up_prj': it keeps nothing"
    )
    assert "'up_proj' for 'up_prj'" in finding.fix
    assert finding.severity is Severity.WARNING  # 20% of the products run again
    assert "names of the step: up_proj, out" in finding.notes


def test_of_several_names_those_that_match_are_left_alone(found_in):
    (finding,) = found_in("HS908", policy('policies.save_only_these_names("up_proj", "scores")'))
    assert [quantity.value for quantity in finding.evidence[:2]] == [1, 1]
    assert "'scores'" in finding.message
    assert "keeps nothing" not in finding.message
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("words", ["mine", 'policies.save_any_names_but_these("out")'])
def test_policies_whose_names_are_there_are_left_alone(found_in, words):
    assert found_in("HS908", policy(words)) == ()
