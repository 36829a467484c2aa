"""A diffusion transformer whose blocks are joined by long skip connections.

The blocks of DiT (Peebles and Xie, arXiv:2212.09748), wired as in U-ViT (Bao et
al., arXiv:2209.12152): what a block of the first half puts out comes back beside
the tokens of its mirror image in the second. All of them work on the same
number of tokens.

At ``small`` it has 22.9 million parameters, and 362 GFLOP of products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import jax
from flax import nnx

from hloscope.models.blocks.layers import LongSkips
from hloscope.models.diffusion_transformer import (
    PatchTransformer,
    TokensConfig,
    dit_block,
    patch_transformer_training,
)
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training

__all__ = ["PRESETS", "SimpleUDiT", "training"]

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
        learning_rate=2e-3,
    ),
    "small": TokensConfig(
        image_size=64,
        patch=4,
        width=384,
        heads=6,
        layers=7,
        time_width=512,
        text_tokens=77,
        text_width=768,
        batch=16,
    ),
    # Depth and width of U-ViT-L.
    "base": TokensConfig(
        image_size=64,
        patch=4,
        width=1024,
        heads=16,
        layers=21,
        time_width=1024,
        text_tokens=77,
        text_width=768,
        batch=256,
        learning_rate=1e-4,
    ),
}


class SimpleUDiT(PatchTransformer):
    """Predicts the noise in an image by blocks with long skip connections."""

    def __init__(self, config: TokensConfig, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        self.blocks = LongSkips(
            partial(dit_block, config),
            config.layers,
            config.width,
            scan=config.scan_layers,
            dtype=config.dtype,
            rngs=rngs,
        )

    def mix(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Run the blocks: ``[batch, tokens, width]`` to the same shape."""
        return self.blocks(tokens, condition, remat=self.config.remat)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """See ``hloscope.models.diffusion_transformer.patch_transformer_training``."""
    return patch_transformer_training("simple_udit", preset, PRESETS, settings, bad, SimpleUDiT)
