"""What is read of policies: JAX's own in every version, and functions of the user's."""

from __future__ import annotations

import functools

import jax
import pytest

from hloscope.capture.remat_policies import read_policy
from hloscope.ir.named_points import RematPolicy

POLICIES = jax.checkpoint_policies


def offload(saved, offloaded):
    return POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=saved,
        names_which_can_be_offloaded=offloaded,
        offload_src="device",
        offload_dst="pinned_host",
    )


def mine(primitive, *_, **params):
    """Says what it keeps in its own code."""
    return primitive.name == "name" and params["name"] in ("a", "b")


def any_of(names, primitive, *_, **params):
    return primitive.name == "name" and params["name"] in names


def broken(*_, **__):
    raise ValueError("a, b")


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (None, RematPolicy("nothing_saveable")),
        (POLICIES.everything_saveable, RematPolicy("everything_saveable", saves_products=True)),
        (POLICIES.dots_saveable, RematPolicy("dots_saveable", saves_products=True)),
        (
            POLICIES.save_only_these_names("b", "a"),
            RematPolicy("save_only_these_names(a, b)", saves=("a", "b")),
        ),
        (
            POLICIES.save_any_names_but_these("a"),
            RematPolicy("save_any_names_but_these(a)", drops=("a",)),
        ),
        (
            POLICIES.save_from_both_policies(
                POLICIES.dots_saveable, POLICIES.save_only_these_names("a")
            ),
            RematPolicy(
                "save_from_both_policies(dots_saveable; save_only_these_names(a))",
                saves=("a",),
                saves_products=True,
            ),
        ),
        (
            offload(["a"], ["b"]),
            RematPolicy(
                "save_and_offload_only_these_names(b; a)",
                saves=("a",),
                offloads=("b",),
                host="pinned_host",
            ),
        ),
        (
            POLICIES.offload_dot_with_no_batch_dims("device", "pinned_host"),
            RematPolicy(
                "offload_dot_with_no_batch_dims", offloads_products=True, host="pinned_host"
            ),
        ),
        (mine, RematPolicy("mine", saves=("a", "b"))),
        (functools.partial(any_of, ["a"]), RematPolicy("any_of(a)", saves=("a",))),
        (broken, RematPolicy("broken")),
    ],
)
def test_a_policy_is_asked_what_it_does_with_each_name_that_it_holds(policy, found):
    assert read_policy(policy) == found
