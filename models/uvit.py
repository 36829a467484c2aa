"""A diffusion transformer to which everything is a token: time, caption and patches.

The U-ViT of Bao et al. (arXiv:2209.12152): plain blocks with long skip
connections, no modulation, and a 3x3 convolution behind the last product. It
differs in its positions, which are fixed, and in its objective, which is that
of ``hloscope.models.diffusion``.

At ``small`` it has 21.0 million parameters, and 649 GFLOP of products in a step.
334 tokens meet in each layer (one of the time, 77 of the caption, 256 of the
image), which no tile divides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from hloscope.models.blocks.layers import LongSkips
from hloscope.models.blocks.modulation import Condition
from hloscope.models.blocks.patches import patches, unpatched
from hloscope.models.blocks.positions import line_positions, position_tables
from hloscope.models.blocks.transformer import TransformerBlock
from hloscope.models.diffusion import diffusion_training
from hloscope.models.diffusion_transformer import TokensConfig
from hloscope.models.sharding import pin
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training, configured

__all__ = ["PRESETS", "UViT", "training"]

PRESETS = {
    "smoke": TokensConfig(
        image_size=16,
        patch=2,
        width=48,
        heads=3,
        layers=5,
        time_width=32,
        text_tokens=8,
        text_width=32,
        text_encoder=TextEncoderConfig(layers=12, heads=4, vocabulary=64),
        batch=8,
        learning_rate=8e-3,
    ),
    "small": TokensConfig(
        image_size=64,
        patch=4,
        width=448,
        heads=7,
        layers=7,
        time_width=1024,
        text_tokens=77,
        text_width=768,
        batch=16,
    ),
    # U-ViT-L/4, as for ImageNet at 64x64.
    "base": TokensConfig(
        image_size=64,
        patch=4,
        width=1024,
        heads=16,
        layers=21,
        time_width=1024,
        text_tokens=77,
        text_width=768,
        batch=1024,
        learning_rate=3e-4,
    ),
}


class UViT(nnx.Module):
    """Predicts the noise in an image, given its caption's embedding."""

    def __init__(self, config: TokensConfig, *, rngs: nnx.Rngs) -> None:
        dtype, width = config.dtype, config.width
        pixels = 3 * config.patch**2

        def block(rngs: nnx.Rngs) -> TransformerBlock:
            return TransformerBlock(
                width, config.heads, route=config.attention, dtype=dtype, rngs=rngs
            )

        self.config = config
        self.time = Condition(config.time_width, dtype=dtype, rngs=rngs)
        self.time_in = nnx.Linear(config.time_width, width, dtype=dtype, rngs=rngs)
        self.text_in = nnx.Linear(config.text_width, width, dtype=dtype, rngs=rngs)
        self.patch_in = nnx.Linear(pixels, width, dtype=dtype, rngs=rngs)
        self.blocks = LongSkips(
            block, config.layers, width, scan=config.scan_layers, dtype=dtype, rngs=rngs
        )
        self.norm_out = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.patch_out = nnx.Linear(width, pixels, dtype=dtype, rngs=rngs)
        self.conv_out = nnx.Conv(
            3, 3, (3, 3), dtype=dtype, kernel_init=nnx.initializers.zeros, rngs=rngs
        )

    def __call__(
        self,
        image: jax.Array,
        time: jax.Array,
        text: jax.Array,
        positions: Sequence[Any],
    ) -> jax.Array:
        """Predict the noise.

        Args:
            image: Noisy images, ``[batch, size, size, 3]``.
            time: From 0 (no noise) to 1 (only noise), ``[batch]``.
            text: Captions' embeddings, ``[batch, text_tokens, text_width]``.
            positions: One table of all tokens, float32, ``[tokens, width]``.

        Returns:
            ``[batch, size, size, 3]`` in float32.
        """
        config = self.config
        with jax.named_scope("tokens_in"):
            time_token = self.time_in(self.time(time))[:, None]
            image_tokens = self.patch_in(patches(image.astype(config.dtype), config.patch))
            tokens = jnp.concatenate((time_token, self.text_in(text), image_tokens), axis=1)
            tokens = pin((tokens + positions[0]).astype(config.dtype))
        tokens = self.blocks(tokens, remat=config.remat)
        with jax.named_scope("patch_out"):
            noise = self.patch_out(self.norm_out(tokens[:, -config.tokens :]))
            noise = unpatched(noise, config.image_size, config.patch)
        with jax.named_scope("conv_out"):
            out: jax.Array = self.conv_out(noise)
            return out.astype(jnp.float32)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """The transformer's training; ``hloscope.models.diffusion`` says what its step takes.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured(PRESETS[preset], settings, bad)
    length = 1 + config.text_tokens + config.tokens

    def create(rngs: nnx.Rngs) -> UViT:
        return UViT(config, rngs=rngs)

    tables = position_tables(
        lambda array: [line_positions(length, config.width, array)],
        config.batch,
        baked="baked-table" in config.bad,
    )
    return diffusion_training("uvit", preset, config, create, UViT.__call__, tables)
