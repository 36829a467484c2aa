"""What turns gradients into updates, and in which type it keeps its state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from optax import contrib

from hloscope.models.blocks.stochastic_rounding import hashed_bits, round_at_random

__all__ = ["kept_in", "make_optimizer"]

_DECAY = 0.01
# Muon's updates then have the root mean square of AdamW's, so that both take the
# same learning rate (Liu et al., arXiv:2502.16982).
_ADAMW_RMS = 0.2


def make_optimizer(
    name: str, learning_rate: float, state_dtype: DTypeLike
) -> optax.GradientTransformation:
    """AdamW or Muon.

    Args:
        name: ``adamw``, which decays kernels and embeddings by 0.01, and no scale or
            bias; or ``muon`` (Jordan et al., 2024): orthogonal updates, decayed as
            well, for the kernels of linear layers, stacked ones each by itself, and
            NAdam for embeddings, convolutions, scales and biases.
        learning_rate: Of either.
        state_dtype: In which the moments are kept; see ``kept_in``.
    """
    if name == "adamw":
        chosen = optax.adamw(learning_rate, weight_decay=_DECAY, mask=_decayed)
    else:
        chosen = contrib.muon(
            learning_rate,
            weight_decay=_DECAY,
            muon_weight_dimension_numbers=_matrices,
            consistent_rms=_ADAMW_RMS,
        )
    return chosen if jnp.dtype(state_dtype) == jnp.float32 else kept_in(state_dtype, chosen)


def kept_in(
    dtype: DTypeLike, optimizer: optax.GradientTransformation
) -> optax.GradientTransformation:
    """An optimizer that computes in float32 and keeps the moments in bfloat16.

    They are rounded at random, up or down in proportion to what each leaves
    over. Rounded to nearest, a second moment would never shrink: a step changes
    it by a thousandth, and the next bfloat16 is a 128th away.

    Args:
        dtype: bfloat16, the only type that is narrower here.
        optimizer: Its state's float32 arrays are what is kept narrow.

    Raises:
        ValueError: When ``dtype`` is another type.
    """
    if jnp.dtype(dtype) != jnp.bfloat16:
        raise ValueError(f"moments are kept in float32 or bfloat16, not in {jnp.dtype(dtype)}")

    def narrowed(state: Any, step: jax.Array) -> Any:
        leaves, tree = jax.tree.flatten(state)
        return jax.tree.unflatten(
            tree,
            [
                _rounded_at_random(leaf, step, number) if leaf.dtype == jnp.float32 else leaf
                for number, leaf in enumerate(leaves)
            ],
        )

    def init(params: Any) -> Any:
        return {
            "kept": narrowed(optimizer.init(params), jnp.uint32(0)),
            "rounded": jnp.zeros((), jnp.uint32),
        }

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        wide = jax.tree.map(
            lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf,
            state["kept"],
        )
        updates, wide = optimizer.update(gradients, wide, params)
        step = state["rounded"] + jnp.uint32(1)
        return updates, {"kept": narrowed(wide, step), "rounded": step}

    return optax.GradientTransformation(init, update)


def _rounded_at_random(value: jax.Array, step: jax.Array, number: int) -> jax.Array:
    """Round the state's array of a number to bfloat16, at random in each step."""
    seed = (jnp.uint32(number), jnp.uint32(0))
    return round_at_random(value, hashed_bits(value.shape, seed, step) >> 16)


def _decayed(params: Any) -> Any:
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key in ("kernel", "embedding"), params
    )


def _matrices(params: Any) -> Any:
    """Which leaves are matrices to Muon: kernels of linear layers, stacked by layer or not."""

    def matrix(path: Any, leaf: Any) -> Any:
        if path[-1].key != "kernel" or leaf.ndim not in (2, 3):
            return None
        return contrib.MuonDimensionNumbers(leaf.ndim - 2, leaf.ndim - 1)

    return jax.tree_util.tree_map_with_path(matrix, params)
