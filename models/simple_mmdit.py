"""A diffusion transformer over image and text together, at one resolution.

The MMDiT of Esser et al. (arXiv:2403.03206): two streams of tokens, each with
weights of its own, meet in one attention; see ``hloscope.models.blocks.joint``.
It is conditioned by the time alone, with no pooled caption, and its objective
is that of ``hloscope.models.diffusion``.

At ``small`` it has 34.4 million parameters, and 379 GFLOP of products in a step;
77 tokens of text and 256 of the image make 333, an odd length.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from hloscope.models.blocks.joint import JointBlock
from hloscope.models.blocks.layers import make_layers, run_layers
from hloscope.models.blocks.modulation import Condition, ModulatedHead
from hloscope.models.blocks.patches import patches, unpatched
from hloscope.models.diffusion import diffusion_training
from hloscope.models.diffusion_transformer import TokensConfig, patch_tables
from hloscope.models.sharding import pin
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training, configured

__all__ = ["PRESETS", "SimpleMMDiT", "training"]

PRESETS = {
    "smoke": TokensConfig(
        image_size=16,
        patch=2,
        width=48,
        heads=2,
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
        layers=6,
        time_width=512,
        text_tokens=77,
        text_width=768,
        batch=16,
    ),
    # Depth and width of Stable Diffusion 3 medium, with the tokens of its 256x256 images.
    "base": TokensConfig(
        image_size=64,
        patch=4,
        width=1536,
        heads=24,
        layers=24,
        time_width=1536,
        text_tokens=154,
        text_width=4096,
        text_encoder=TextEncoderConfig(layers=12, heads=64, vocabulary=49408),
        batch=256,
        learning_rate=1e-4,
    ),
}


class SimpleMMDiT(nnx.Module):
    """Predicts the noise in an image, given its caption's embedding."""

    def __init__(self, config: TokensConfig, *, rngs: nnx.Rngs) -> None:
        dtype, width, condition_width = config.dtype, config.width, config.time_width
        pixels = 3 * config.patch**2

        def block(rngs: nnx.Rngs, *, text_ends: bool = False) -> JointBlock:
            return JointBlock(
                width,
                width // config.heads,
                condition_width,
                text_ends=text_ends,
                route=config.attention,
                dtype=dtype,
                rngs=rngs,
            )

        self.config = config
        self.condition = Condition(condition_width, dtype=dtype, rngs=rngs)
        self.text_in = nnx.Linear(config.text_width, width, dtype=dtype, rngs=rngs)
        self.patch_in = nnx.Linear(pixels, width, dtype=dtype, rngs=rngs)
        self.blocks = make_layers(block, config.layers - 1, scan=config.scan_layers, rngs=rngs)
        # Nothing reads the text any more: it has fewer weights than the others.
        self.last = block(rngs, text_ends=True)
        self.head = ModulatedHead(width, pixels, condition_width, dtype=dtype, rngs=rngs)

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
            positions: One table of the image's tokens, float32, ``[tokens, width]``.

        Returns:
            ``[batch, size, size, 3]`` in float32.
        """
        config, remat = self.config, self.config.remat
        with jax.named_scope("time"):
            condition = self.condition(time)
        with jax.named_scope("text_in"):
            text = pin(self.text_in(text))
        with jax.named_scope("patch_in"):
            tokens = self.patch_in(patches(image.astype(config.dtype), config.patch))
            tokens = pin((tokens + positions[0]).astype(config.dtype))
        streams, _ = run_layers(self.blocks, (tokens, text), condition, remat=remat)
        (tokens, _), _ = run_layers([self.last], streams, condition, remat=remat, scope="last")
        with jax.named_scope("patch_out"):
            noise = self.head(tokens, condition)
            return unpatched(noise, config.image_size, config.patch).astype(jnp.float32)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """The transformer's training; ``hloscope.models.diffusion`` says what its step takes.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured(PRESETS[preset], settings, bad)

    def create(rngs: nnx.Rngs) -> SimpleMMDiT:
        return SimpleMMDiT(config, rngs=rngs)

    return diffusion_training(
        "simple_mmdit", preset, config, create, SimpleMMDiT.__call__, patch_tables(config)
    )
