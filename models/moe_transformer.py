"""The decoder-only language model with experts in place of every second layer's MLP.

Eight gated MLPs each, of which a token takes two; the rest is ``causal_transformer``.
At ``small`` it has 116.5 M parameters, and a step's products take 3755 GFLOP where
``experts`` is ``ragged``, 4009 with ``capacity`` and 5842 with ``dense``; at ``base``
1063 M and 49.9 TFLOP. FLOPs are counted over the jaxpr, where each row of a ragged
product meets one expert.

The loss adds a hundredth of the load that ``Experts`` gives, summed over layers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from hloscope.models import causal_transformer
from hloscope.models.blocks.experts import ExpertRoute, Experts
from hloscope.models.blocks.layers import run_layers
from hloscope.models.blocks.mlp import GatedMlp
from hloscope.models.causal_transformer import TransformerConfig, causal_attention
from hloscope.models.next_token import LanguageModel, configured_language, next_token_training
from hloscope.models.sharding import pin
from hloscope.models.training import Training

__all__ = ["PRESETS", "MoeConfig", "MoeTransformer", "training"]

# Fedus et al., arXiv:2101.03961, section 2.2.
_LOAD_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class MoeConfig(TransformerConfig):
    """Shapes of the model and of its training batch.

    Attributes:
        experts: How they run; see ``hloscope.models.blocks.experts``.
        number: Of experts in a layer that has them.
        chosen: How many of them a token takes.
        every: The last of so many layers has experts.
    """

    experts: ExpertRoute = "ragged"
    number: int = 8
    chosen: int = 2
    every: int = 2

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """What ``tensor``, ``sequence`` and ``expert`` split."""
        return {**super().counts, "expert": {"experts": self.number}}


PRESETS = {name: MoeConfig(**asdict(dense)) for name, dense in causal_transformer.PRESETS.items()}


class MoeLayer(nnx.Module):
    """Causal attention, and an MLP or experts, each around a shortcut behind an RMSNorm.

    Args:
        config: Shapes.
        routed: Whether it has experts.
        rngs: Source of the initial parameters.
    """

    def __init__(self, config: MoeConfig, *, routed: bool, rngs: nnx.Rngs) -> None:
        width, dtype = config.width, config.dtype
        self.norm1 = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        self.attention = causal_attention(config, rngs)
        self.norm2 = nnx.RMSNorm(width, dtype=dtype, rngs=rngs)
        if routed:
            self.experts = Experts(
                width,
                config.hidden,
                number=config.number,
                chosen=config.chosen,
                route=config.experts,
                dtype=dtype,
                rngs=rngs,
            )
        else:
            self.mlp = GatedMlp(width, config.hidden, dtype=dtype, rngs=rngs)
        self.routed = routed

    def __call__(self, tokens: jax.Array, load: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Map ``[batch, tokens, width]`` to the same shape, and add to ``load`` ``[batch]``."""
        with jax.named_scope("attention"):
            mixed = self.attention(self.norm1(tokens))
            tokens = pin(tokens + checkpoint_name(mixed, "attention_out"))
        if self.routed:
            with jax.named_scope("experts"):
                mixed, more = self.experts(self.norm2(tokens))
                return tokens + checkpoint_name(mixed, "mlp_out"), load + more
        with jax.named_scope("mlp"):
            return tokens + checkpoint_name(self.mlp(self.norm2(tokens)), "mlp_out"), load


class MoeTransformer(LanguageModel):
    """A language model whose every second layer has experts."""

    def __init__(self, config: MoeConfig, *, rngs: nnx.Rngs) -> None:
        layers = nnx.List(
            MoeLayer(config, routed=(index + 1) % config.every == 0, rngs=rngs)
            for index in range(config.layers)
        )
        super().__init__(config, layers, rngs=rngs)

    def mix(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Run the layers; the loss adds the experts' load."""
        load = jnp.zeros(hidden.shape[0], jnp.float32)
        (hidden, load), _ = run_layers(self.layers, (hidden, load), remat=self.remat)
        return hidden, _LOAD_SHARE * jnp.mean(load)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """The language model's training; see ``hloscope.models.next_token``.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured_language(PRESETS[preset], settings, bad)
    return next_token_training(
        "moe_transformer", preset, config, lambda rngs: MoeTransformer(config, rngs=rngs)
    )
