"""A decoder-only language model with rotary positions, gated MLPs and a tied head.

The head's product keeps float32 operands, as many training codes do for the
loss's sake; everything before it computes in ``dtype``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from hloscope.ir.signature import Role
from hloscope.models.blocks.attention import Attention
from hloscope.models.blocks.layers import make_layers, run_layers
from hloscope.models.blocks.mlp import GatedMlp
from hloscope.models.sharding import Constrain
from hloscope.models.training import Learner, State, Training, TrainingConfig, configured

__all__ = ["PRESETS", "CausalTransformer", "TransformerConfig", "training"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TrainingConfig):
    """Shapes of the model and of its training batch.

    Attributes:
        layers: Number of decoder layers.
        width: Channels of a token.
        heads: Attention heads; ``width / heads`` is even.
        hidden: Channels between the products of the gated MLP.
        words: Number of distinct tokens.
        vocabulary: Rows of the embedding: ``words`` and padding to a whole tile.
        tokens: Tokens of a sequence.
        remat: See ``hloscope.models.blocks.layers``.
        scan_layers: Whether one loop runs over stacked layers.
    """

    layers: int
    width: int
    heads: int
    hidden: int
    words: int
    vocabulary: int
    tokens: int
    remat: str = "none"
    scan_layers: bool = False


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
}


class DecoderLayer(nnx.Module):
    """Causal attention and a gated MLP, each around a shortcut behind an RMSNorm."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs) -> None:
        width, dtype = config.width, config.dtype
        self.norm1 = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.attention = Attention(
            width,
            width,
            config.heads,
            rotary=True,
            causal=True,
            route=config.attention,
            dtype=dtype,
            rngs=rngs,
        )
        self.norm2 = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.mlp = GatedMlp(width, config.hidden, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape."""
        with jax.named_scope("attention"):
            mixed = self.attention(self.norm1(tokens))
            tokens = tokens + checkpoint_name(mixed, "attention_out")
        with jax.named_scope("mlp"):
            mixed = self.mlp(self.norm2(tokens))
            kept: jax.Array = checkpoint_name(mixed, "mlp_out")
            return tokens + kept


class CausalTransformer(nnx.Module):
    """Embedding, decoder layers, and the embedding again as the head."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs) -> None:
        self.remat = config.remat
        self.embed = nnx.Embed(
            config.vocabulary,
            config.width,
            dtype=config.dtype,
            embedding_init=nnx.initializers.normal(0.02),
            rngs=rngs,
        )
        self.layers = make_layers(
            lambda rngs: DecoderLayer(config, rngs=rngs),
            config.layers,
            scan=config.scan_layers,
            rngs=rngs,
        )
        self.norm = nnx.RMSNorm(config.width, dtype=config.dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array, constrain: Constrain) -> jax.Array:
        """Predict the next token at every place.

        Args:
            tokens: int32, ``[batch, tokens]``.
            constrain: Applied to the activations between layers.

        Returns:
            Logits, float32, ``[batch, tokens, vocabulary]``.
        """
        with jax.named_scope("embed"):
            hidden = constrain(self.embed(tokens))
        hidden, _ = run_layers(self.layers, hidden, remat=self.remat, constrain=constrain)
        with jax.named_scope("head"):
            hidden = self.norm(hidden).astype(jnp.float32)
            return constrain(jnp.einsum("btc,vc->btv", hidden, self.embed.embedding[...]))


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """The language model's training.

    Its step takes ``state``, and ``batch`` with ``tokens`` and ``targets``, the
    tokens one place on (int32, ``[batch, tokens]`` each). Nothing in it is
    random.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured(PRESETS[preset], settings, bad)
    if "odd-length" in config.bad:
        config = replace(config, vocabulary=config.words)

    def create(rngs: nnx.Rngs) -> CausalTransformer:
        return CausalTransformer(config, rngs=rngs)

    learner = Learner(create, config)

    def make_step(constrain: Constrain) -> Any:
        def causal_transformer_step(
            state: State, batch: Mapping[str, jax.Array]
        ) -> tuple[State, dict[str, jax.Array]]:
            def loss(model: CausalTransformer) -> jax.Array:
                logits = model(batch["tokens"], constrain)
                with jax.named_scope("loss"):
                    losses = optax.softmax_cross_entropy_with_integer_labels(
                        logits, batch["targets"]
                    )
                    return jnp.mean(losses)

            return learner.update(state, loss)

        return causal_transformer_step

    def example(key: jax.Array) -> tuple[Any, ...]:
        shape = (config.batch, config.tokens + 1)
        text = jax.random.randint(key, shape, 0, config.words)
        return ({"tokens": text[:, :-1], "targets": text[:, 1:]},)

    return Training(
        name=f"causal_transformer ({preset})",
        make_step=make_step,
        init=learner.init,
        example=example,
        roles=(Role.BATCH,),
        donates="undonated-state" not in config.bad,
    )
