"""Layers that a condition shifts, scales and gates: adaLN-zero.

After Peebles and Xie (arXiv:2212.09748). Modulations start at zero, so that
each branch starts closed and each block as the identity.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from hloscope.models.blocks.positions import sinusoidal_embedding
from hloscope.models.sharding import pin

__all__ = ["Condition", "ModulatedBranch", "ModulatedHead", "modulation", "unscaled_norm"]


class Condition(nnx.Module):
    """One vector for each sample from its time, and from its caption where that is pooled.

    Args:
        width: Channels of the vector.
        text_width: Channels of a caption's tokens; ``None`` for a vector of the time alone.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self, width: int, text_width: int | None = None, *, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:
        self.width = width
        self.dtype = dtype
        self.time_in = nnx.Linear(width, width, dtype=dtype, rngs=rngs)
        self.time_out = nnx.Linear(width, width, dtype=dtype, rngs=rngs)
        if text_width is not None:
            self.text = nnx.Linear(text_width, width, dtype=dtype, rngs=rngs)

    def __call__(self, time: jax.Array, text: jax.Array | None = None) -> jax.Array:
        """Map ``[batch]``, and ``[batch, text_tokens, text_width]``, to ``[batch, width]``."""
        embedded = sinusoidal_embedding(time, self.width).astype(self.dtype)
        condition = self.time_out(nnx.silu(self.time_in(embedded)))
        if text is not None:
            condition = condition + self.text(jnp.mean(text, axis=1))
        return nnx.silu(condition)


class ModulatedBranch(nnx.Module):
    """``x + gate * branch(norm(x) * (1 + scale) + shift)``.

    Args:
        branch: Maps ``[batch, tokens, width]`` to the same shape.
        name: Of the branch in scopes; ``{name}_out`` names what it puts out for ``remat``.
        width: Channels of a token.
        condition_width: Channels of the condition.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        branch: Callable[[jax.Array], jax.Array],
        name: str,
        width: int,
        condition_width: int,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.name = name
        self.modulation = modulation(width, 3, condition_width, dtype=dtype, rngs=rngs)
        self.norm = unscaled_norm(width, dtype=dtype, rngs=rngs)
        self.branch = branch

    def __call__(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape, given ``[batch, condition_width]``."""
        with jax.named_scope(self.name):
            shift, scale, gate = jnp.split(self.modulation(condition)[:, None], 3, axis=-1)
            mixed = self.branch(self.norm(tokens) * (1 + scale) + shift)
            kept: jax.Array = checkpoint_name(mixed, f"{self.name}_out")
            return pin(tokens + gate * kept)


class ModulatedHead(nnx.Module):
    """The last norm, modulated, and the product that starts at zero: ``[.., out_width]``."""

    def __init__(
        self,
        width: int,
        out_width: int,
        condition_width: int,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.norm = unscaled_norm(width, dtype=dtype, rngs=rngs)
        self.modulation = modulation(width, 2, condition_width, dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(
            width, out_width, dtype=dtype, kernel_init=nnx.initializers.zeros, rngs=rngs
        )

    def __call__(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to ``[batch, tokens, out_width]``."""
        shift, scale = jnp.split(self.modulation(condition)[:, None], 2, axis=-1)
        out: jax.Array = self.out(self.norm(tokens) * (1 + scale) + shift)
        return out


def unscaled_norm(width: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """A norm that leaves scale and shift to the modulation behind it."""
    return nnx.LayerNorm(width, use_bias=False, use_scale=False, dtype=dtype, rngs=rngs)


def modulation(
    width: int, parts: int, condition_width: int, *, dtype: DTypeLike, rngs: nnx.Rngs
) -> nnx.Linear:
    """From a condition to ``parts`` of ``width`` channels, all zero at the start."""
    return nnx.Linear(
        condition_width,
        parts * width,
        dtype=dtype,
        kernel_init=nnx.initializers.zeros,
        rngs=rngs,
    )
