"""A language model of Mamba-2's cells (Dao and Gu, arXiv:2405.21060), with no attention.

Each layer is one cell: a product to gate, values, keys, queries and steps in time,
a short convolution, the recurrence in chunks, a gated norm and a product back; see
``hloscope.models.blocks.state_space_duality``. The embedding is the head, too.
``base`` has the shape of the published model of 130 million parameters.

At ``small`` it has 39.5 million parameters, and 2100 GFLOP of products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from hloscope.models.blocks.recurrent_cell import Decay, ShortConvolution
from hloscope.models.blocks.state_space_duality import state_space_duality
from hloscope.models.next_token import (
    LanguageConfig,
    configured_language,
    equal_layers,
    next_token_training,
)
from hloscope.models.training import Training

__all__ = ["PRESETS", "CellLayer", "SsmConfig", "training"]


@dataclass(frozen=True, kw_only=True)
class SsmConfig(LanguageConfig):
    """Shapes of the cells; all heads share keys and queries.

    Attributes:
        heads: States of a cell, each with its own decay; divide ``inner``.
        inner: Channels of the values.
        state: Channels of keys and queries.
        taps: Tokens that the short convolution looks at.
        chunk: Tokens of a chunk; divides ``tokens``.
    """

    heads: int
    inner: int
    state: int
    taps: int = 4
    chunk: int


PRESETS = {
    "smoke": SsmConfig(
        layers=4,
        width=64,
        heads=4,
        inner=128,
        state=16,
        chunk=16,
        words=251,
        vocabulary=256,
        tokens=32,
        batch=8,
        learning_rate=3e-3,
    ),
    "small": SsmConfig(
        layers=8,
        width=512,
        heads=16,
        inner=1024,
        state=128,
        chunk=128,
        words=50257,
        vocabulary=50304,
        tokens=1024,
        batch=8,
        learning_rate=3e-4,
    ),
    "base": SsmConfig(
        layers=24,
        width=768,
        heads=24,
        inner=1536,
        state=128,
        chunk=256,
        words=50257,
        vocabulary=50304,
        tokens=2048,
        batch=64,
        learning_rate=6e-4,
    ),
}


class CellLayer(nnx.Module):
    """A cell around a shortcut, behind an RMSNorm."""

    def __init__(self, config: SsmConfig, *, rngs: nnx.Rngs) -> None:
        width, inner, dtype = config.width, config.inner, config.dtype
        self.config = config
        convolved = inner + 2 * config.state
        self.norm = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.input = nnx.Linear(
            width, inner + convolved + config.heads, use_bias=False, dtype=dtype, rngs=rngs
        )
        self.convolution = ShortConvolution(convolved, config.taps, dtype=dtype, rngs=rngs)
        self.decay = Decay(config.heads)
        self.skip = nnx.Param(jnp.ones(config.heads))
        self.gated_norm = nnx.RMSNorm(inner, dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(inner, width, use_bias=False, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        with jax.named_scope("cell"):
            kept: jax.Array = checkpoint_name(self._mixed(self.norm(tokens)), "cell_out")
            return tokens + kept

    def _mixed(self, tokens: jax.Array) -> jax.Array:
        config = self.config
        ends = (config.inner, 2 * (config.inner + config.state))
        gate, convolved, asked = jnp.split(self.input(tokens), ends, axis=-1)
        value, key, query = jnp.split(
            self.convolution(convolved), (config.inner, config.inner + config.state), axis=-1
        )
        steps, decay = self.decay(asked)
        value = value.reshape(*tokens.shape[:2], config.heads, -1)
        with jax.named_scope("recurrence"):
            driven = (value * steps[..., None]).astype(value.dtype)
            output = state_space_duality(query, key, driven, decay, chunk=config.chunk)
        output += value * self.skip[...].astype(value.dtype)[:, None]
        gated = self.gated_norm(output.reshape(gate.shape) * nnx.silu(gate))
        mixed: jax.Array = self.out(gated)
        return mixed


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """See ``hloscope.models.next_token.next_token_training``.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured_language(PRESETS[preset], settings, bad)
    create = equal_layers(config, lambda rngs: CellLayer(config, rngs=rngs))
    return next_token_training("ssm", preset, config, create)
