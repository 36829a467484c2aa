"""What a transformer does to each token by itself."""

from __future__ import annotations

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

__all__ = ["GatedMlp", "Mlp"]


class Mlp(nnx.Module):
    """``down(gelu(up(x)))``, with biases."""

    def __init__(self, width: int, hidden: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(width, hidden, dtype=dtype, rngs=rngs)
        self.down = nnx.Linear(hidden, width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        mixed: jax.Array = self.down(nnx.gelu(self.up(tokens)))
        return mixed


class GatedMlp(nnx.Module):
    """``down(silu(gate(x)) * up(x))``, the SwiGLU of Shazeer (arXiv:2002.05202).

    For remat policies the two are named ``mlp_gate`` and ``mlp_up``.
    """

    def __init__(self, width: int, hidden: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.gate = nnx.Linear(width, hidden, use_bias=False, dtype=dtype, rngs=rngs)
        self.up = nnx.Linear(width, hidden, use_bias=False, dtype=dtype, rngs=rngs)
        self.down = nnx.Linear(hidden, width, use_bias=False, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        gate = checkpoint_name(self.gate(tokens), "mlp_gate")
        mixed: jax.Array = self.down(nnx.silu(gate) * checkpoint_name(self.up(tokens), "mlp_up"))
        return mixed
