"""A diffusion UNet that learns the noise in an image, given a caption's embedding.

Residual blocks with group normalization and SiLU, a time embedding in each,
and attention to the image and to the text at the lower resolutions, after Ho
et al. (arXiv:2006.11239) and Rombach et al. (arXiv:2112.10752).

At ``small`` it has 9.8 million parameters, and 638 GFLOP of products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from hloscope.models.blocks.attention import Attention
from hloscope.models.blocks.convolution import ResidualBlock, doubled, group_norm
from hloscope.models.blocks.positions import sinusoidal_embedding
from hloscope.models.diffusion import DiffusionConfig, diffusion_training
from hloscope.models.sharding import pin
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training, configured

__all__ = ["PRESETS", "Stage", "UNet", "UNetConfig", "training"]


@dataclass(frozen=True, kw_only=True)
class UNetConfig(DiffusionConfig):
    """Shapes of the UNet, beside those of every diffusion model.

    Attributes:
        widths: Channels of each level, from the full resolution down; each
            level has half the resolution of the one before.
        blocks: Residual blocks of a level on the way down; as many on the way up.
        attention_levels: Levels whose residual blocks are followed by attention.
        heads: Attention heads.
    """

    widths: tuple[int, ...]
    blocks: int
    attention_levels: tuple[int, ...]
    heads: int


PRESETS = {
    "smoke": UNetConfig(
        image_size=16,
        widths=(16, 32),
        blocks=1,
        attention_levels=(1,),
        heads=2,
        time_width=32,
        text_tokens=8,
        text_width=32,
        text_encoder=TextEncoderConfig(layers=12, heads=4, vocabulary=64),
        batch=8,
        learning_rate=2e-3,
    ),
    "small": UNetConfig(
        image_size=64,
        widths=(128, 160, 192),
        blocks=1,
        attention_levels=(2,),
        heads=3,
        time_width=512,
        text_tokens=77,
        text_width=768,
        batch=16,
    ),
    # ADM's UNet for ImageNet at 64x64, with text.
    "base": UNetConfig(
        image_size=64,
        widths=(192, 384, 576, 768),
        blocks=3,
        attention_levels=(1, 2, 3),
        heads=6,
        time_width=768,
        text_tokens=77,
        text_width=768,
        batch=256,
        learning_rate=1e-4,
    ),
}


class AttentionBlock(nnx.Module):
    """Attention of the pixels to each other, then to the text, each around a shortcut."""

    def __init__(self, width: int, config: UNetConfig, *, rngs: nnx.Rngs) -> None:
        def attention(context_width: int) -> Attention:
            return Attention(
                width,
                context_width,
                config.heads,
                route=config.attention,
                dtype=config.dtype,
                rngs=rngs,
            )

        self.norm1 = group_norm(width, dtype=config.dtype, rngs=rngs)
        self.to_image = attention(width)
        self.norm2 = group_norm(width, dtype=config.dtype, rngs=rngs)
        self.to_text = attention(config.time_width)

    def __call__(self, image: jax.Array, text: jax.Array) -> jax.Array:
        """Map ``[batch, h, w, width]`` to the same shape."""
        pixels = image.reshape(image.shape[0], -1, image.shape[-1])
        pixels = pixels + self.to_image(self.norm1(pixels))
        pixels = pixels + self.to_text(self.norm2(pixels), text)
        return pixels.reshape(image.shape)


class Stage(nnx.Module):
    """A residual block, and attention behind it at levels that have it."""

    def __init__(
        self, width: int, out_width: int, config: UNetConfig, *, attends: bool, rngs: nnx.Rngs
    ) -> None:
        self.block = ResidualBlock(
            width, out_width, config.time_width, dtype=config.dtype, rngs=rngs
        )
        if attends:
            self.attention = AttentionBlock(out_width, config, rngs=rngs)
        self.attends = attends

    def __call__(self, image: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
        """Map ``[batch, h, w, width]`` to ``[batch, h, w, out_width]``."""
        with jax.named_scope("block"):
            image = self.block(image, time)
        if self.attends:
            with jax.named_scope("attention"):
                image = self.attention(image, text)
        return image


class UNet(nnx.Module):
    """Predicts the noise in an image.

    Each level keeps what it puts out on the way down; the way up takes these
    up again, last first, beside its own channels.
    """

    stage: type[Stage] = Stage

    def __init__(self, config: UNetConfig, *, rngs: nnx.Rngs) -> None:
        dtype, widths = config.dtype, config.widths

        def stage(width: int, out_width: int, level: int) -> Stage:
            attends = level in config.attention_levels
            return self.stage(width, out_width, config, attends=attends, rngs=rngs)

        self.dtype = dtype
        self.time_width = config.time_width
        self.time_in = nnx.Linear(config.time_width, config.time_width, dtype=dtype, rngs=rngs)
        self.time_out = nnx.Linear(config.time_width, config.time_width, dtype=dtype, rngs=rngs)
        self.text_in = nnx.Linear(config.text_width, config.time_width, dtype=dtype, rngs=rngs)
        self.conv_in = nnx.Conv(3, widths[0], (3, 3), dtype=dtype, rngs=rngs)

        width = widths[0]
        kept: list[list[int]] = []
        down: list[nnx.List[Stage]] = []
        shrink: list[nnx.Conv] = []
        for level, out_width in enumerate(widths):
            if level:
                shrink.append(
                    nnx.Conv(width, width, (3, 3), strides=(2, 2), dtype=dtype, rngs=rngs)
                )
            stages = []
            for _ in range(config.blocks):
                stages.append(stage(width, out_width, level))
                width = out_width
            down.append(nnx.List(stages))
            kept.append([out_width] * config.blocks)
        self.down = nnx.List(down)
        self.shrink = nnx.List(shrink)

        self.middle = nnx.List([stage(width, width, len(widths) - 1) for _ in range(2)])

        up: list[nnx.List[Stage]] = []
        grow: list[nnx.Conv] = []
        for level in reversed(range(len(widths))):
            out_width = widths[level]
            stages = []
            for skip in reversed(kept[level]):
                stages.append(stage(width + skip, out_width, level))
                width = out_width
            up.append(nnx.List(stages))
            if level:
                grow.append(nnx.Conv(width, widths[level - 1], (3, 3), dtype=dtype, rngs=rngs))
                width = widths[level - 1]
        self.up = nnx.List(up)
        self.grow = nnx.List(grow)

        self.norm_out = group_norm(width, dtype=dtype, rngs=rngs)
        self.conv_out = nnx.Conv(
            width, 3, (3, 3), dtype=dtype, kernel_init=nnx.initializers.zeros, rngs=rngs
        )

    def __call__(self, image: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
        """Predict the noise.

        Args:
            image: Noisy images, ``[batch, size, size, 3]``.
            time: From 0 (no noise) to 1 (only noise), ``[batch]``.
            text: Captions' embeddings, ``[batch, text_tokens, text_width]``.

        Returns:
            ``[batch, size, size, 3]`` in float32.
        """
        return self.denoise(image, *self.embed(time, text))

    def embed(self, time: jax.Array, text: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What every stage takes of times and captions: ``time_width`` channels of both."""
        with jax.named_scope("time"):
            time = sinusoidal_embedding(time, self.time_width).astype(self.dtype)
            time = self.time_out(nnx.silu(self.time_in(time)))
        with jax.named_scope("text"):
            return time, self.text_in(text)

    def denoise(self, image: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
        """Predict the noise from what ``embed`` made: ``[batch, size, size, 3]`` in float32."""
        with jax.named_scope("conv_in"):
            image = pin(self.conv_in(image.astype(self.dtype)))
        kept: list[jax.Array] = []
        for level, stages in enumerate(self.down):
            if level:
                with jax.named_scope(f"shrink_{level - 1}"):
                    image = self.shrink[level - 1](image)
            for index, stage in enumerate(stages):
                with jax.named_scope(f"down_{level}_{index}"):
                    image = pin(stage(image, time, text))
                kept.append(image)
        for index, stage in enumerate(self.middle):
            with jax.named_scope(f"middle_{index}"):
                image = pin(stage(image, time, text))
        for level, stages in enumerate(self.up):
            for index, stage in enumerate(stages):
                with jax.named_scope(f"up_{level}_{index}"):
                    joined = jnp.concatenate((image, kept.pop()), axis=-1)
                    image = pin(stage(joined, time, text))
            if level < len(self.grow):
                with jax.named_scope(f"grow_{level}"):
                    image = self.grow[level](doubled(image))
        with jax.named_scope("conv_out"):
            noise: jax.Array = self.conv_out(nnx.silu(self.norm_out(image)))
            return noise.astype(jnp.float32)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """The UNet's training; ``hloscope.models.diffusion`` says what its step takes.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured(PRESETS[preset], settings, bad)

    def create(rngs: nnx.Rngs) -> UNet:
        return UNet(config, rngs=rngs)

    return diffusion_training("unet", preset, config, create, UNet.__call__)
