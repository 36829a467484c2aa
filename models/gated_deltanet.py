"""Gated DeltaNet, a language model (Yang, Kautz and Hatamizadeh, arXiv:2412.06464).

Each layer is a cell whose state fades and is corrected by the delta rule, and a gated
MLP; see ``hloscope.models.blocks.gated_delta_rule``. Keys of all heads together have
three quarters of the width, values twice as much. The embedding is the head, too.

At ``small`` it has 48.2 million parameters, and 2507 GFLOP of products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from hloscope.models.blocks.gated_delta_rule import gated_delta_rule
from hloscope.models.blocks.mlp import GatedMlp
from hloscope.models.blocks.recurrent_cell import Decay, ShortConvolution
from hloscope.models.next_token import (
    LanguageConfig,
    configured_language,
    equal_layers,
    next_token_training,
)
from hloscope.models.training import Training

__all__ = ["PRESETS", "DeltaConfig", "DeltaLayer", "training"]

_SMALLEST_SQUARE = 1e-6  # of a key's length, so that one of zeros has a gradient


@dataclass(frozen=True, kw_only=True)
class DeltaConfig(LanguageConfig):
    """Shapes of the cells and MLPs.

    Attributes:
        heads: States of a cell.
        key_width: Channels of a head's keys and queries.
        value_width: Channels of a head's values.
        hidden: Channels between the products of the gated MLP.
        taps: Tokens that the short convolutions look at.
        chunk: Tokens of a chunk, a power of two; divides ``tokens``.
    """

    heads: int
    key_width: int
    value_width: int
    hidden: int
    taps: int = 4
    chunk: int


PRESETS = {
    "smoke": DeltaConfig(
        layers=4,
        width=64,
        heads=3,
        key_width=16,
        value_width=32,
        hidden=128,
        chunk=4,
        words=251,
        vocabulary=256,
        tokens=32,
        batch=8,
        learning_rate=5e-3,
    ),
    "small": DeltaConfig(
        layers=6,
        width=512,
        heads=3,
        key_width=128,
        value_width=256,
        hidden=1408,
        chunk=64,
        words=50257,
        vocabulary=50304,
        tokens=1024,
        batch=8,
        learning_rate=3e-4,
    ),
    "base": DeltaConfig(
        layers=21,
        width=1024,
        heads=6,
        key_width=128,
        value_width=256,
        hidden=2816,
        chunk=64,
        words=50257,
        vocabulary=50304,
        tokens=2048,
        batch=64,
        learning_rate=4e-4,
    ),
}


class DeltaCell(nnx.Module):
    """Queries, keys and values through short convolutions, the gated delta rule, a gated norm."""

    def __init__(self, config: DeltaConfig, *, rngs: nnx.Rngs) -> None:
        width, heads, dtype = config.width, config.heads, config.dtype
        keys, values = heads * config.key_width, heads * config.value_width
        self.config = config

        def linear(inputs: int, outputs: int) -> nnx.Linear:
            return nnx.Linear(inputs, outputs, use_bias=False, dtype=dtype, rngs=rngs)

        def convolution(channels: int) -> ShortConvolution:
            return ShortConvolution(channels, config.taps, dtype=dtype, rngs=rngs)

        self.query, self.key, self.value = (linear(width, n) for n in (keys, keys, values))
        self.query_taps, self.key_taps, self.value_taps = map(convolution, (keys, keys, values))
        self.asked, self.rate = linear(width, heads), linear(width, heads)
        self.decay = Decay(heads)
        self.gate = linear(width, values)
        self.norm = nnx.RMSNorm(config.value_width, dtype=dtype, rngs=rngs)
        self.out = linear(values, width)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        query = self._split(self.query_taps(self.query(tokens)))
        key = self._split(self.key_taps(self.key(tokens)))
        value = self._split(self.value_taps(self.value(tokens)))
        rate = jax.nn.sigmoid(self.rate(tokens).astype(jnp.float32))
        _, decay = self.decay(self.asked(tokens))
        with jax.named_scope("recurrence"):
            query = _unit(query) * self.config.key_width**-0.5
            output = gated_delta_rule(
                query, _unit(key), value, decay, rate, chunk=self.config.chunk
            )
        gated = self.norm(output) * nnx.silu(self._split(self.gate(tokens)))
        mixed: jax.Array = self.out(gated.reshape(*tokens.shape[:2], -1))
        return mixed

    def _split(self, features: jax.Array) -> jax.Array:
        return features.reshape(*features.shape[:2], self.config.heads, -1)


class DeltaLayer(nnx.Module):
    """A cell and a gated MLP, each around a shortcut behind an RMSNorm."""

    def __init__(self, config: DeltaConfig, *, rngs: nnx.Rngs) -> None:
        width, dtype = config.width, config.dtype
        self.norm1 = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.cell = DeltaCell(config, rngs=rngs)
        self.norm2 = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.mlp = GatedMlp(width, config.hidden, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        with jax.named_scope("cell"):
            tokens = tokens + checkpoint_name(self.cell(self.norm1(tokens)), "cell_out")
        with jax.named_scope("mlp"):
            kept: jax.Array = checkpoint_name(self.mlp(self.norm2(tokens)), "mlp_out")
            return tokens + kept


def _unit(vectors: jax.Array) -> jax.Array:
    """Bring ``[..., width]`` to length one, in float32."""
    wide = vectors.astype(jnp.float32)
    squares = jnp.sum(wide**2, axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(squares + _SMALLEST_SQUARE)).astype(vectors.dtype)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """See ``hloscope.models.next_token.next_token_training``.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured_language(PRESETS[preset], settings, bad)
    create = equal_layers(config, lambda rngs: DeltaLayer(config, rngs=rngs))
    return next_token_training("gated_deltanet", preset, config, create)
