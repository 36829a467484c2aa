"""Gated MLPs of which each token takes few: a router, and three ways to run the experts.

``ragged`` sorts the tokens by expert and multiplies each expert's rows by its own
matrices (``jax.lax.ragged_dot``; MegaBlocks, Gale et al., arXiv:2211.15841), so
that no token is lost and none is padded. ``dense`` runs every expert on every
token and weighs what it puts out, mostly by zero. ``capacity`` gives an expert a
fixed number of places in each sequence, filled and emptied by products with
one-hot matrices; what finds no place passes by (GShard, Lepikhin et al.,
arXiv:2006.16668).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

__all__ = ["ExpertRoute", "Experts"]

ExpertRoute = Literal["ragged", "dense", "capacity"]

# Places of an expert over what it gets when all get as much (GShard and after).
_CAPACITY = 1.25

Product = Callable[[jax.Array, jax.Array], jax.Array]
"""Rows, however they are laid out, times their experts' matrices."""


class _Matrices(nnx.Module):
    """One matrix an expert: ``kernel``, ``[experts, width in, width out]``."""

    def __init__(self, experts: int, inner: int, outer: int, *, rngs: nnx.Rngs) -> None:
        start = jax.nn.initializers.lecun_normal(batch_axis=(0,))
        self.kernel = nnx.Param(start(rngs.params(), (experts, inner, outer), jnp.float32))


class Experts(nnx.Module):
    """A router, and gated MLPs of which each token takes the likeliest.

    What they put out is weighed by the router's probabilities, which sum to one
    over those taken (Mixtral, Jiang et al., arXiv:2401.04088). The router computes
    in float32: a rounded one would choose other experts. For remat policies the
    values in an expert are named as in ``GatedMlp``.

    Args:
        width: Channels of a token.
        hidden: Channels between the products of an expert.
        number: Of experts.
        chosen: How many of them a token takes.
        route: How they run.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        number: int,
        chosen: int,
        route: ExpertRoute,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.number = number
        self.chosen = chosen
        self.route: ExpertRoute = route
        self.dtype = dtype
        self.router = nnx.Linear(width, number, use_bias=False, dtype=jnp.float32, rngs=rngs)
        self.gate = _Matrices(number, width, hidden, rngs=rngs)
        self.up = _Matrices(number, width, hidden, rngs=rngs)
        self.down = _Matrices(number, hidden, width, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Run each token's experts.

        Args:
            tokens: ``[batch, tokens, width]``.

        Returns:
            The same shape; and each sequence's load, float32 ``[batch]``: experts times
            the sum over them of the share of choices that fell on one and its mean
            probability. It is 1 where both are even (Fedus et al., arXiv:2101.03961,
            eq. 4; over a sequence by itself, so that no device waits for another's).
        """
        with jax.named_scope("router"):
            likely = jax.nn.softmax(self.router(tokens.astype(jnp.float32)))
            weights, choice = jax.lax.top_k(likely, self.chosen)
            weights /= jnp.sum(weights, axis=-1, keepdims=True)
            taken = jax.nn.one_hot(choice, self.number, dtype=jnp.float32)
            shares = jnp.mean(taken, axis=(1, 2))
            load = self.number * jnp.sum(shares * jnp.mean(likely, axis=1), axis=-1)
        run = {"ragged": self._ragged, "dense": self._dense, "capacity": self._capacity}[self.route]
        return run(tokens, weights, choice), load

    def _ragged(self, tokens: jax.Array, weights: jax.Array, choice: jax.Array) -> jax.Array:
        expert = choice.reshape(-1)
        order = jnp.argsort(expert)
        sizes = jnp.bincount(expert, length=self.number).astype(jnp.int32)
        rows = tokens.reshape(-1, tokens.shape[-1])[order // self.chosen]
        mixed = self._mlp(rows, lambda rows, matrices: jax.lax.ragged_dot(rows, matrices, sizes))
        each = mixed[jnp.argsort(order)].reshape(*choice.shape, -1)
        return jnp.einsum("btkc,btk->btc", each, weights.astype(each.dtype))

    def _dense(self, tokens: jax.Array, weights: jax.Array, choice: jax.Array) -> jax.Array:
        taken = jax.nn.one_hot(choice, self.number, dtype=weights.dtype)
        every = jnp.einsum("btk,btke->bte", weights, taken).astype(self.dtype)
        rows = jnp.broadcast_to(tokens[None], (self.number, *tokens.shape))
        mixed = self._mlp(rows, _expert_by_expert)
        return jnp.einsum("ebtc,bte->btc", mixed, every)

    def _capacity(self, tokens: jax.Array, weights: jax.Array, choice: jax.Array) -> jax.Array:
        batch, length, chosen = choice.shape
        places = math.ceil(_CAPACITY * length * chosen / self.number)
        taken = jax.nn.one_hot(choice, self.number, dtype=jnp.int32)
        # Every token's first choice comes before anyone's second.
        queue = taken.swapaxes(1, 2).reshape(batch, chosen * length, self.number)
        ahead = (jnp.cumsum(queue, axis=1) - queue).reshape(batch, chosen, length, self.number)
        place = jnp.sum(ahead.swapaxes(1, 2) * taken, axis=-1)
        # A place that an expert does not have is a row of zeros.
        sent = jax.nn.one_hot(place, places, dtype=self.dtype)
        taken = taken.astype(self.dtype)
        rows = jnp.einsum("btke,btkp,btc->ebpc", taken, sent, tokens)
        mixed = self._mlp(rows, _expert_by_expert)
        back = jnp.einsum("btk,btke,btkp->btep", weights.astype(self.dtype), taken, sent)
        return jnp.einsum("ebpc,btep->btc", mixed, back)

    def _mlp(self, rows: jax.Array, product: Product) -> jax.Array:
        gate, up, down = (
            matrices.kernel[...].astype(self.dtype) for matrices in (self.gate, self.up, self.down)
        )
        opened = nnx.silu(checkpoint_name(product(rows, gate), "mlp_gate"))
        return product(opened * checkpoint_name(product(rows, up), "mlp_up"), down)


def _expert_by_expert(rows: jax.Array, matrices: jax.Array) -> jax.Array:
    """``[experts, batch, rows, width in]`` by ``[experts, width in, width out]``."""
    return jnp.einsum("ebrc,ech->ebrh", rows, matrices)
