"""A diffusion transformer in which most layers carry a state in place of attention.

Two layers with a linear recurrence for each one with attention, as hybrid
language models do (Lieber et al., arXiv:2403.19887), in the blocks of DiT with
adaLN-zero; see ``hloscope.models.blocks.state_space``.

At ``small`` it has 17.5 million parameters, and 233 GFLOP of products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import jax
from flax import nnx

from hloscope.models.blocks.layers import make_layers, run_layers
from hloscope.models.blocks.mlp import Mlp
from hloscope.models.blocks.modulation import ModulatedBranch
from hloscope.models.blocks.state_space import StateSpace
from hloscope.models.diffusion_transformer import (
    PatchTransformer,
    TokensConfig,
    dit_block,
    patch_transformer_training,
)
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training

__all__ = ["PRESETS", "HybridConfig", "HybridDiT", "training"]


@dataclass(frozen=True, kw_only=True)
class HybridConfig(TokensConfig):
    """Shapes of the transformer; its layers come in groups.

    Attributes:
        recurrent: Layers with a state before each one with attention; one more
            than it divides ``layers``.
        states: Channels of a state, in each direction.
    """

    recurrent: int
    states: int


PRESETS = {
    "smoke": HybridConfig(
        image_size=16,
        patch=2,
        width=48,
        heads=3,
        layers=8,
        recurrent=1,
        states=16,
        time_width=32,
        text_tokens=8,
        text_width=32,
        text_encoder=TextEncoderConfig(layers=12, heads=4, vocabulary=64),
        batch=8,
        learning_rate=2e-3,
    ),
    "small": HybridConfig(
        image_size=64,
        patch=4,
        width=384,
        heads=6,
        layers=6,
        recurrent=2,
        states=128,
        time_width=512,
        text_tokens=77,
        text_width=768,
        batch=16,
    ),
    # DiT-XL's width and depth, less one layer.
    "base": HybridConfig(
        image_size=64,
        patch=4,
        width=1152,
        heads=16,
        layers=27,
        recurrent=2,
        states=384,
        time_width=1152,
        text_tokens=77,
        text_width=768,
        batch=256,
        learning_rate=1e-4,
    ),
}


class RecurrentBlock(nnx.Module):
    """A state along the tokens and an MLP, each shifted, scaled and gated by the condition."""

    def __init__(self, config: HybridConfig, rngs: nnx.Rngs) -> None:
        width, condition_width, dtype = config.width, config.time_width, config.dtype
        mixer = StateSpace(width, config.states, dtype=dtype, rngs=rngs)
        mlp = Mlp(width, 4 * width, dtype=dtype, rngs=rngs)
        self.state_space = ModulatedBranch(
            mixer, "state_space", width, condition_width, dtype=dtype, rngs=rngs
        )
        self.mlp = ModulatedBranch(mlp, "mlp", width, condition_width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape, given ``[batch, condition_width]``."""
        return self.mlp(self.state_space(tokens, condition), condition)


class Group(nnx.Module):
    """Layers with a state, and one with attention behind them."""

    def __init__(self, config: HybridConfig, rngs: nnx.Rngs) -> None:
        self.recurrent = nnx.List([RecurrentBlock(config, rngs) for _ in range(config.recurrent)])
        self.attention = dit_block(config, rngs)

    def __call__(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape, given ``[batch, condition_width]``."""
        for index, block in enumerate(self.recurrent):
            with jax.named_scope(f"recurrent_{index}"):
                tokens = block(tokens, condition)
        return self.attention(tokens, condition)


class HybridDiT(PatchTransformer):
    """Predicts the noise in an image by groups of layers, one after another."""

    def __init__(self, config: HybridConfig, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        group = partial(Group, config)
        groups = config.layers // (config.recurrent + 1)
        self.groups = make_layers(group, groups, scan=config.scan_layers, rngs=rngs)

    def mix(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Run the groups: ``[batch, tokens, width]`` to the same shape."""
        remat = self.config.remat
        mixed: jax.Array
        mixed, _ = run_layers(self.groups, tokens, condition, remat=remat)
        return mixed


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """See ``hloscope.models.diffusion_transformer.patch_transformer_training``."""
    return patch_transformer_training("hybrid_dit", preset, PRESETS, settings, bad, HybridDiT)
