"""What diffusion transformers with one stream of tokens have in common.

Patches become tokens, positions are added, layers that the time and the pooled
caption modulate follow, and a modulated head puts the noise together again. A
video's tokens stand frame by frame. The layers are the family's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from hloscope.models.blocks.modulation import Condition, ModulatedHead
from hloscope.models.blocks.patches import patches, unpatched
from hloscope.models.blocks.positions import (
    PositionTables,
    grid_positions,
    line_positions,
    position_tables,
)
from hloscope.models.blocks.transformer import DiTBlock
from hloscope.models.diffusion import DiffusionConfig, diffusion_training
from hloscope.models.sharding import pin
from hloscope.models.training import Training, configured

__all__ = [
    "PatchTransformer",
    "TokensConfig",
    "dit_block",
    "patch_tables",
    "patch_transformer_training",
]


@dataclass(frozen=True, kw_only=True)
class TokensConfig(DiffusionConfig):
    """Shapes of a transformer on patches, beside those of every diffusion model.

    Attributes:
        patch: Height and width of the pixels that make one token.
        width: Channels of a token, a multiple of 4.
        heads: Attention heads; divides ``width``.
        layers: Number of layers.
        remat: See ``hloscope.models.blocks.layers``.
        scan_layers: Whether one loop runs over stacked layers.
    """

    patch: int
    width: int
    heads: int
    layers: int
    remat: str = "none"
    scan_layers: bool = True

    @property
    def side(self) -> int:
        """Height and width of the grid of an image's tokens."""
        return self.image_size // self.patch

    @property
    def tokens(self) -> int:
        """Tokens of one image or video."""
        return (self.frames or 1) * self.side**2

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """What ``tensor`` and ``sequence`` split."""
        rows = {"rows of patches": self.side, **self.whole}
        return {"tensor": {"heads": self.heads}, "sequence": rows}


class PatchTransformer(nnx.Module):
    """Predicts the noise in an image or a video, given its caption's embedding.

    Args:
        config: Shapes of the model.
        rngs: Source of the initial parameters.
    """

    def __init__(self, config: TokensConfig, *, rngs: nnx.Rngs) -> None:
        dtype, width, condition_width = config.dtype, config.width, config.time_width
        pixels = 3 * config.patch**2
        self.config = config
        self.condition = Condition(condition_width, config.text_width, dtype=dtype, rngs=rngs)
        self.patch_in = nnx.Linear(pixels, width, dtype=dtype, rngs=rngs)
        self.head = ModulatedHead(width, pixels, condition_width, dtype=dtype, rngs=rngs)

    def mix(self, tokens: jax.Array, condition: jax.Array) -> jax.Array:
        """Run the layers: ``[batch, tokens, width]`` to the same shape."""
        raise NotImplementedError

    def __call__(
        self,
        noisy: jax.Array,
        time: jax.Array,
        text: jax.Array,
        positions: Sequence[Any],
    ) -> jax.Array:
        """Predict the noise.

        Args:
            noisy: Images, ``[batch, size, size, 3]``, or videos, with the frames
                behind the batch.
            time: From 0 (no noise) to 1 (only noise), ``[batch]``.
            text: Captions' embeddings, ``[batch, text_tokens, text_width]``.
            positions: One table, float32, ``[tokens, width]``.

        Returns:
            The shape of ``noisy``, in float32.
        """
        config = self.config
        frames = (-1, config.image_size, config.image_size, 3)
        with jax.named_scope("condition"):
            condition = self.condition(time, text)
        with jax.named_scope("patch_in"):
            cut = patches(noisy.astype(config.dtype).reshape(frames), config.patch)
            tokens = self.patch_in(cut.reshape(noisy.shape[0], config.tokens, -1))
            tokens = pin((tokens + positions[0]).astype(config.dtype))
        tokens = self.mix(tokens, condition)
        with jax.named_scope("patch_out"):
            noise = self.head(tokens, condition)
            grids = noise.reshape(-1, config.side**2, noise.shape[-1])
            pixels = unpatched(grids, config.image_size, config.patch)
            return pixels.reshape(noisy.shape).astype(jnp.float32)


def dit_block(config: TokensConfig, rngs: nnx.Rngs) -> DiTBlock:
    """A block of the configured shapes, to be modulated by the model's condition."""
    return DiTBlock(
        config.width,
        config.heads,
        config.time_width,
        route=config.attention,
        dtype=config.dtype,
        rngs=rngs,
    )


def patch_tables(config: TokensConfig) -> PositionTables:
    """One table: each token's row and column, and in a video its frame."""

    def make(array: Any) -> list[Any]:
        grid = grid_positions(config.side, config.width, array)
        if config.frames is None:
            return [grid]
        frames = line_positions(config.frames, config.width, array)
        return [(frames[:, None] + grid).reshape(config.tokens, config.width)]

    return position_tables(make, config.batch, baked="baked-table" in config.bad)


def patch_transformer_training(
    arch: str,
    preset: str,
    presets: Mapping[str, Any],
    settings: Mapping[str, str],
    bad: Collection[str],
    model: Callable[..., nnx.Module],
) -> Training:
    """The training of one family; ``hloscope.models.diffusion`` says what its step takes.

    Args:
        arch: The architecture's name.
        preset: Name of the size.
        presets: The family's configurations.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
        model: The family's class.
    """
    config: TokensConfig = configured(presets[preset], settings, bad)

    def create(rngs: nnx.Rngs) -> nnx.Module:
        return model(config, rngs=rngs)

    def denoise(model: Any, *inputs: Any) -> jax.Array:
        noise: jax.Array = model(*inputs)
        return noise

    return diffusion_training(arch, preset, config, create, denoise, patch_tables(config))
