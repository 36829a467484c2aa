"""What cells with a state are made of: short convolutions and decays that tokens choose."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

__all__ = ["Decay", "ShortConvolution"]

# Of the steps in time that a token may take before training (Mamba, arXiv:2312.00752).
_SHORTEST, _LONGEST = 1e-3, 1e-1
# Of the rates at which heads forget (Mamba-2, arXiv:2405.21060).
_SLOWEST, _FASTEST = 1.0, 16.0


class ShortConvolution(nnx.Module):
    """Each channel's mean of its last tokens with learned weights, then SiLU.

    Args:
        width: Channels.
        taps: Tokens that are looked at, the token itself the last of them.
        dtype: Of activations.
        rngs: Source of the initial parameters.
    """

    def __init__(self, width: int, taps: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.dtype = dtype
        start = jax.random.uniform(rngs.params(), (taps, width), minval=-1.0, maxval=1.0)
        self.taps = nnx.Param(start * taps**-0.5)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape; no token sees a later one."""
        taps = self.taps[...].astype(self.dtype)
        number, length = taps.shape[0], tokens.shape[1]
        padded = jnp.pad(tokens, ((0, 0), (number - 1, 0), (0, 0)))
        # Products of shifted tokens fuse; a convolution of one channel each would not.
        shifted = (padded[:, tap : tap + length] * taps[tap] for tap in range(number))
        mixed: jax.Array = nnx.silu(sum(shifted, jnp.zeros_like(tokens)))
        return mixed


class Decay(nnx.Module):
    """Steps in time from what tokens ask for, and how much of the state they leave.

    ``step = softplus(asked + offset)`` and ``decay = -exp(rate) step``, in float32.
    Both parameters start spaced over the heads, the steps geometrically.

    Args:
        heads: States that fade by themselves.
    """

    def __init__(self, heads: int) -> None:
        steps = jnp.geomspace(_SHORTEST, _LONGEST, heads)
        self.offset = nnx.Param(jnp.log(jnp.expm1(steps)))
        # Long steps with slow rates and the other way round, or half of the
        # heads would forget everything at once.
        self.rate = nnx.Param(jnp.log(jnp.linspace(_FASTEST, _SLOWEST, heads)))

    def __call__(self, asked: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Map ``[..., heads]`` to steps and log decays of the same shape."""
        steps = jax.nn.softplus(asked.astype(jnp.float32) + self.offset[...])
        return steps, -jnp.exp(self.rate[...]) * steps
