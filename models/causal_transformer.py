"""A decoder-only language model with rotary positions and gated MLPs.

At ``small`` it has 67.0 M parameters and a tied head, and a step's products take
3406 GFLOP, as published. ``base`` has the shape of Llama (Touvron et al.,
arXiv:2302.13971) at 0.3 B: keys and values shared by four heads each (Ainslie et
al., arXiv:2305.13245) and a head of its own, 336 M parameters and 39.7 TFLOP.

The head's product keeps float32 operands, as many training codes do for the
loss's sake; everything before it computes in ``dtype``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from hloscope.models.blocks.attention import Attention
from hloscope.models.blocks.mlp import GatedMlp
from hloscope.models.next_token import (
    LanguageConfig,
    configured_language,
    equal_layers,
    next_token_training,
)
from hloscope.models.sharding import pin
from hloscope.models.training import Training

__all__ = [
    "PRESETS",
    "DecoderLayer",
    "TransformerConfig",
    "causal_attention",
    "training",
]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LanguageConfig):
    """Shapes of the model and of its training batch.

    Attributes:
        heads: Attention heads; ``width / heads`` is even.
        key_heads: Heads of keys and values, which divide ``heads``; as many where 0.
        hidden: Channels between the products of the gated MLP.
    """

    heads: int
    key_heads: int = 0
    hidden: int
    wide_head: bool = True

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """What ``tensor`` and ``sequence`` split."""
        split = {
            "heads": self.heads,
            "heads of keys": self.key_heads or self.heads,
            "channels in the MLP": self.hidden,
            "words": self.vocabulary,
        }
        # Each part of a sequence that the head takes is split anew.
        tokens = {"tokens": self.tokens, "tokens of a chunk": self.tokens // self.head_chunks}
        return {"tensor": split, "sequence": {**tokens, **self.whole}}


PRESETS = {
    "smoke": TransformerConfig(
        layers=2,
        width=64,
        heads=4,
        hidden=256,
        words=251,
        vocabulary=256,
        tokens=32,
        batch=8,
        learning_rate=3e-3,
    ),
    "small": TransformerConfig(
        layers=3,
        width=768,
        heads=12,
        hidden=3072,
        words=50257,
        vocabulary=50304,
        tokens=512,
        batch=16,
        learning_rate=3e-4,
    ),
    "base": TransformerConfig(
        layers=24,
        width=1024,
        heads=16,
        key_heads=4,
        hidden=2816,
        tied=False,
        words=32000,
        vocabulary=32000,
        tokens=2048,
        batch=8,
        learning_rate=3e-4,
    ),
}


def causal_attention(config: TransformerConfig, rngs: nnx.Rngs) -> Attention:
    """The attention of one of the model's layers: causal, with rotary positions."""
    return Attention(
        config.width,
        config.width,
        config.heads,
        key_heads=config.key_heads or config.heads,
        rotary=True,
        causal=True,
        route=config.attention,
        dtype=config.dtype,
        rngs=rngs,
    )


class DecoderLayer(nnx.Module):
    """Causal attention and a gated MLP, each around a shortcut behind an RMSNorm."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs) -> None:
        width, dtype = config.width, config.dtype
        self.norm1 = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.attention = causal_attention(config, rngs)
        self.norm2 = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.mlp = GatedMlp(width, config.hidden, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        with jax.named_scope("attention"):
            mixed = self.attention(self.norm1(tokens))
            tokens = pin(tokens + checkpoint_name(mixed, "attention_out"))
        with jax.named_scope("mlp"):
            mixed = self.mlp(self.norm2(tokens))
            kept: jax.Array = checkpoint_name(mixed, "mlp_out")
            return tokens + kept


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """The language model's training; see ``hloscope.models.next_token``.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured_language(PRESETS[preset], settings, bad)
    create = equal_layers(config, lambda rngs: DecoderLayer(config, rngs=rngs))
    return next_token_training("causal_transformer", preset, config, create)
