"""A diffusion transformer on videos that attends within a frame, then across frames.

Factorized attention as in Ho et al. (arXiv:2204.03458) and Latte (Ma et al.,
arXiv:2401.03048), in blocks with adaLN-zero: each token meets those of its frame,
then those of its place in all frames, then an MLP.

At ``small`` it has 26.2 million parameters, and 757 GFLOP of products in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import jax
from flax import nnx

from hloscope.models.blocks.attention import Attention
from hloscope.models.blocks.factorized import AcrossFrames, WithinFrames
from hloscope.models.blocks.layers import make_layers, run_layers
from hloscope.models.blocks.mlp import Mlp
from hloscope.models.blocks.modulation import ModulatedBranch
from hloscope.models.diffusion_transformer import (
    PatchTransformer,
    TokensConfig,
    patch_transformer_training,
)
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training

__all__ = ["PRESETS", "VideoDiT", "training"]

PRESETS = {
    "smoke": TokensConfig(
        image_size=16,
        frames=4,
        patch=4,
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
        frames=8,
        patch=4,
        width=384,
        heads=6,
        layers=6,
        time_width=512,
        text_tokens=77,
        text_width=768,
        batch=4,
    ),
    # Depth and width of Latte-XL, whose 28 layers alternate: 14 blocks with both.
    "base": TokensConfig(
        image_size=64,
        frames=16,
        patch=4,
        width=1152,
        heads=16,
        layers=14,
        time_width=1152,
        text_tokens=77,
        text_width=768,
        batch=32,
        learning_rate=1e-4,
    ),
}


class FactorizedBlock(nnx.Module):
    """Attention within frames, attention across frames, and an MLP, each modulated."""

    def __init__(self, config: TokensConfig, rngs: nnx.Rngs) -> None:
        width, dtype = config.width, config.dtype
        frames = config.frames or 1

        def attention() -> Attention:
            return Attention(
                width, width, config.heads, route=config.attention, dtype=dtype, rngs=rngs
            )

        def branch(inner: Callable[[jax.Array], jax.Array], name: str) -> ModulatedBranch:
            return ModulatedBranch(inner, name, width, config.time_width, dtype=dtype, rngs=rngs)

        self.within = branch(WithinFrames(attention(), frames), "attention")
        self.across = branch(AcrossFrames(attention(), frames), "temporal")
        self.mlp = branch(Mlp(width, 4 * width, dtype=dtype, rngs=rngs), "mlp")

    def __call__(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape, given ``[batch, condition_width]``."""
        tokens = self.within(tokens, condition)
        return self.mlp(self.across(tokens, condition), condition)


class VideoDiT(PatchTransformer):
    """Predicts the noise in a video by equal blocks, one after another."""

    def __init__(self, config: TokensConfig, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        block = partial(FactorizedBlock, config)
        self.blocks = make_layers(block, config.layers, scan=config.scan_layers, rngs=rngs)

    def mix(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Run the blocks: ``[batch, tokens, width]`` to the same shape."""
        remat = self.config.remat
        mixed: jax.Array
        mixed, _ = run_layers(self.blocks, tokens, condition, remat=remat)
        return mixed


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """See ``hloscope.models.diffusion_transformer.patch_transformer_training``."""
    return patch_transformer_training("video_dit", preset, PRESETS, settings, bad, VideoDiT)
