"""A frozen text encoder, for the step that encodes the empty caption itself.

Good steps take the embedding of the empty caption as an argument. This one is
there for ``--bad per-step-null`` alone: a causal transformer as in CLIP
(Radford et al., arXiv:2103.00020), whose parameters the step takes frozen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from hloscope.models.blocks.layers import make_layers, run_layers
from hloscope.models.blocks.positions import line_positions
from hloscope.models.blocks.transformer import TransformerBlock

__all__ = ["TextEncoder", "TextEncoderConfig"]


@dataclass(frozen=True, kw_only=True)
class TextEncoderConfig:
    """Shapes of the encoder.

    Attributes:
        layers: Number of layers.
        heads: Attention heads.
        vocabulary: Number of distinct tokens.
    """

    layers: int
    heads: int
    vocabulary: int


class TextEncoder(nnx.Module):
    """Embedding, layers in one loop, and a last norm."""

    def __init__(
        self, width: int, config: TextEncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:
        def layer(rngs: nnx.Rngs) -> TransformerBlock:
            return TransformerBlock(
                width, config.heads, causal=True, route="xla", dtype=dtype, rngs=rngs
            )

        self.embed = nnx.Embed(config.vocabulary, width, dtype=dtype, rngs=rngs)
        self.layers = make_layers(layer, config.layers, scan=True, rngs=rngs)
        self.norm = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map int32 ``[tokens]`` to ``[tokens, width]``."""
        hidden = self.embed(tokens[None])
        hidden = (hidden + line_positions(*hidden.shape[1:])).astype(hidden.dtype)
        hidden, _ = run_layers(self.layers, hidden, remat="none")
        encoded: Any = self.norm(hidden)
        return jnp.squeeze(encoded, axis=0)
