"""A layer that carries a state along the tokens, in both directions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

__all__ = ["StateSpace"]

# Shortest and longest time, in tokens, after which a state has faded to 1/e.
_SHORTEST, _LONGEST = 2.0, 256.0


class StateSpace(nnx.Module):
    """A diagonal linear recurrence from tokens to tokens, gated, forwards and backwards.

    The S5 layer (Smith et al., arXiv:2208.04933) with real decays, as in the LRU
    (Orvieto et al., arXiv:2303.06349) without its phases:
    ``state[t] = decay * state[t - 1] + sqrt(1 - decay ** 2) * input(token[t])``, by an
    associative scan in float32, as images have no direction once from each end.

    Args:
        width: Channels of a token.
        states: Channels of the state in each direction.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(self, width: int, states: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.dtype = dtype
        self.input = nnx.Linear(width, 2 * states, use_bias=False, dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(2 * states, width, use_bias=False, dtype=dtype, rngs=rngs)
        # Decays are exp(-exp(rate)), their times spaced geometrically.
        times = jnp.geomspace(_SHORTEST, _LONGEST, states)
        self.rate = nnx.Param(jnp.tile(-jnp.log(times), 2))
        self.skip = nnx.Param(jnp.ones(width))

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        decay = jnp.exp(-jnp.exp(self.rate[...]))
        driven = self.input(tokens).astype(jnp.float32) * jnp.sqrt(1 - decay**2)
        directions = zip(
            jnp.split(driven, 2, axis=-1), jnp.split(decay, 2), (False, True), strict=True
        )
        states = [carried(*direction) for direction in directions]
        mixed = self.out(jnp.concatenate(states, axis=-1).astype(self.dtype))
        out: Any = nnx.gelu(mixed + tokens * self.skip[...].astype(self.dtype))
        return jnp.asarray(out)


def carried(driven: jax.Array, decay: jax.Array, backwards: bool) -> jax.Array:
    """``state[t] = decay * state[t - 1] + driven[t]``, or from the last token on.

    Args:
        driven: ``[batch, tokens, states]``.
        decay: ``[states]``.
        backwards: Whether the last token comes first.
    """

    def joined(first: Any, second: Any) -> Any:
        return first[0] * second[0], second[0] * first[1] + second[1]

    decays = jnp.broadcast_to(decay, driven.shape)
    _, states = jax.lax.associative_scan(joined, (decays, driven), reverse=backwards, axis=1)
    carried_states: jax.Array = states
    return carried_states
