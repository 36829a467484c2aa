"""What a layer keeps for the backward pass.

``none`` keeps what differentiation needs; ``full`` keeps only the layer's
inputs and computes the rest again; ``dots`` also keeps the results of products.
``names:A+B`` keeps the values of these names beside the inputs, ``offload:A+B``
keeps them in the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

__all__ = ["layer_function"]

_POLICIES: dict[str, Callable[..., Any] | None] = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_saveable,
}


def _policy(remat: str) -> Callable[..., Any] | None:
    kind, _, names = remat.partition(":")
    policy = _POLICIES.get(kind)
    if kind == "names":
        policy = jax.checkpoint_policies.save_only_these_names(*names.split("+"))
    if kind == "offload":
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=names.split("+"),
            offload_src="device",
            offload_dst="pinned_host",
        )
    return policy


def layer_function(layer: nnx.Module, remat: str) -> tuple[Callable[..., Any], Any]:
    """A layer as a function of its parameters and inputs, and its parameters.

    Args:
        layer: Its call is what runs; it holds parameters only.
        remat: ``none``, ``full``, ``dots``, ``names:A+B`` or ``offload:A+B``.
    """
    graphdef, params = nnx.split(layer)

    def run(params: Any, *inputs: jax.Array) -> Any:
        called: Any = nnx.merge(graphdef, params)
        return called(*inputs)

    if remat == "none":
        return run, params
    return jax.checkpoint(run, policy=_policy(remat)), params
