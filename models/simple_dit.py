"""A diffusion transformer on the patches of an image.

The DiT of Peebles and Xie (arXiv:2212.09748) with adaLN-zero blocks, on pixels
in place of latents. Its condition is the time and the caption, whose tokens are
averaged.

At ``small`` it has 19.1 million parameters, and 291 GFLOP of products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import jax
from flax import nnx

from hloscope.models.blocks.layers import make_layers, run_layers
from hloscope.models.diffusion_transformer import (
    PatchTransformer,
    TokensConfig,
    dit_block,
    patch_transformer_training,
)
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training

__all__ = ["PRESETS", "SimpleDiT", "training"]

PRESETS = {
    "smoke": TokensConfig(
        image_size=16,
        patch=2,
        width=48,
        heads=3,
        layers=4,
        time_width=32,
        text_tokens=8,
        text_width=32,
        text_encoder=TextEncoderConfig(layers=12, heads=4, vocabulary=64),
        batch=8,
        learning_rate=2e-3,
    ),
    "small": TokensConfig(
        image_size=64,
        patch=4,
        width=384,
        heads=6,
        layers=6,
        time_width=512,
        text_tokens=77,
        text_width=768,
        batch=16,
    ),
    # DiT-XL/2, as it is trained on 32x32 latents: 256 tokens.
    "base": TokensConfig(
        image_size=64,
        patch=4,
        width=1152,
        heads=16,
        layers=28,
        time_width=1152,
        text_tokens=77,
        text_width=768,
        batch=256,
        learning_rate=1e-4,
    ),
}


class SimpleDiT(PatchTransformer):
    """Predicts the noise in an image by equal blocks, one after another."""

    def __init__(self, config: TokensConfig, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        block = partial(dit_block, config)
        self.blocks = make_layers(block, config.layers, scan=config.scan_layers, rngs=rngs)

    def mix(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Run the blocks: ``[batch, tokens, width]`` to the same shape."""
        remat = self.config.remat
        mixed: jax.Array
        mixed, _ = run_layers(self.blocks, tokens, condition, remat=remat)
        return mixed


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """See ``hloscope.models.diffusion_transformer.patch_transformer_training``."""
    return patch_transformer_training("simple_dit", preset, PRESETS, settings, bad, SimpleDiT)
