"""A video encoder that learns by predicting its own features of hidden places.

After V-JEPA (Bardes et al., arXiv:2404.08471), in the training of
``hloscope.models.jepa``; it differs in its attention, which is factorized: within
frames, then across them.

At ``small`` it has 16.7 million parameters that a gradient reaches, and 756 GFLOP of
products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flax import nnx
from jax.typing import DTypeLike

from hloscope.models.blocks.factorized import VideoTransformerBlock
from hloscope.models.jepa import JepaConfig, jepa_training
from hloscope.models.training import Training

__all__ = ["PRESETS", "training"]

PRESETS = {
    "smoke": JepaConfig(
        image_size=16,
        frames=4,
        patch=4,
        visible=8,
        width=48,
        heads=3,
        layers=4,
        predictor_width=32,
        predictor_heads=2,
        predictor_layers=4,
        batch=8,
        learning_rate=2e-3,
    ),
    "small": JepaConfig(
        image_size=64,
        frames=8,
        patch=4,
        visible=128,
        width=384,
        heads=6,
        layers=6,
        predictor_width=192,
        predictor_heads=3,
        predictor_layers=4,
        batch=4,
    ),
    # ViT-L's depth and width on 16 frames of 224x224 in patches of 16.
    "base": JepaConfig(
        image_size=224,
        frames=16,
        patch=16,
        visible=48,
        width=1024,
        heads=16,
        layers=24,
        predictor_width=384,
        predictor_heads=12,
        predictor_layers=12,
        batch=32,
        learning_rate=1e-4,
    ),
}


def block(
    config: JepaConfig, width: int, heads: int, dtype: DTypeLike, rngs: nnx.Rngs
) -> VideoTransformerBlock:
    """Attention within and across frames, and an MLP."""
    return VideoTransformerBlock(
        width, heads, config.frames or 1, route=config.attention, dtype=dtype, rngs=rngs
    )


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """See ``hloscope.models.jepa.jepa_training``."""
    return jepa_training("jepa_video_encoder", preset, PRESETS, settings, bad, block)
