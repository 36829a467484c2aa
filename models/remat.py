"""What a layer keeps for the backward pass.

``none`` keeps what differentiation needs; ``full`` keeps only the layer's
inputs and computes the rest again; ``dots`` also keeps the results of products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

__all__ = ["layer_function"]

_POLICIES: dict[str, Callable[..., bool] | None] = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_saveable,
}


def layer_function(layer: nnx.Module, remat: str) -> tuple[Callable[..., Any], Any]:
    """A layer as a function of its parameters and inputs, and its parameters.

    Args:
        layer: Its call is what runs; it holds parameters only.
        remat: ``none``, ``full`` or ``dots``.
    """
    graphdef, params = nnx.split(layer)

    def run(params: Any, *inputs: jax.Array) -> Any:
        called: Any = nnx.merge(graphdef, params)
        return called(*inputs)

    if remat == "none":
        return run, params
    return jax.checkpoint(run, policy=_POLICIES[remat]), params
