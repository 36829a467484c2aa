"""An image encoder that learns by predicting its own features of hidden patches.

A vision transformer in the training of ``hloscope.models.jepa``.

At ``small`` it has 13.0 million parameters that a gradient reaches, and 303 GFLOP of
products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flax import nnx
from jax.typing import DTypeLike

from hloscope.models.blocks.transformer import TransformerBlock
from hloscope.models.jepa import JepaConfig, jepa_training
from hloscope.models.training import Training

__all__ = ["PRESETS", "training"]

PRESETS = {
    "smoke": JepaConfig(
        image_size=16,
        patch=2,
        visible=32,
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
        patch=4,
        visible=128,
        width=384,
        heads=6,
        layers=6,
        predictor_width=192,
        predictor_heads=3,
        predictor_layers=5,
        batch=16,
    ),
    # ViT-H and the predictor of I-JEPA, with the tokens of 224x224 images in patches of 14.
    "base": JepaConfig(
        image_size=224,
        patch=14,
        visible=64,
        width=1280,
        heads=16,
        layers=32,
        predictor_width=384,
        predictor_heads=12,
        predictor_layers=12,
        batch=128,
        learning_rate=1e-4,
    ),
}


def block(
    config: JepaConfig, width: int, heads: int, dtype: DTypeLike, rngs: nnx.Rngs
) -> TransformerBlock:
    """Attention of all tokens of an image to each other, and an MLP."""
    return TransformerBlock(width, heads, route=config.attention, dtype=dtype, rngs=rngs)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """See ``hloscope.models.jepa.jepa_training``."""
    return jepa_training("jepa_encoder", preset, PRESETS, settings, bad, block)
