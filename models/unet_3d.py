"""A diffusion UNet on videos.

The image UNet of ``hloscope.models.unet`` on every frame, inflated as in Ho et al.
(arXiv:2204.03458) and Blattmann et al. (arXiv:2304.08818): behind each stage a
convolution along time, and where the stage has attention, attention of each pixel
to itself in all frames. Both start as the identity.

At ``small`` it has 11.1 million parameters, and 1420 GFLOP of products in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from hloscope.models.blocks.attention import Attention
from hloscope.models.blocks.convolution import group_norm
from hloscope.models.diffusion import diffusion_training
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training, configured
from hloscope.models.unet import Stage, UNet, UNetConfig

__all__ = ["PRESETS", "UNet3D", "training"]

PRESETS = {
    "smoke": UNetConfig(
        image_size=16,
        frames=4,
        widths=(16, 32),
        blocks=1,
        attention_levels=(1,),
        heads=2,
        time_width=32,
        text_tokens=8,
        text_width=32,
        text_encoder=TextEncoderConfig(layers=12, heads=4, vocabulary=64),
        batch=4,
        learning_rate=2e-3,
    ),
    "small": UNetConfig(
        image_size=64,
        frames=8,
        widths=(128, 160, 192),
        blocks=1,
        attention_levels=(2,),
        heads=3,
        time_width=512,
        text_tokens=77,
        text_width=768,
        batch=4,
    ),
    # ADM's UNet for 64x64, inflated.
    "base": UNetConfig(
        image_size=64,
        frames=16,
        widths=(192, 384, 576, 768),
        blocks=3,
        attention_levels=(2, 3),
        heads=6,
        time_width=768,
        text_tokens=77,
        text_width=768,
        batch=64,
        learning_rate=1e-4,
    ),
}


class VideoStage(Stage):
    """A stage on every frame, then along time; frames stand in the batch."""

    def __init__(
        self, width: int, out_width: int, config: UNetConfig, *, attends: bool, rngs: nnx.Rngs
    ) -> None:
        super().__init__(width, out_width, config, attends=attends, rngs=rngs)
        dtype, zeros = config.dtype, nnx.initializers.zeros
        self.frames = config.frames or 1
        self.norm = group_norm(out_width, dtype=dtype, rngs=rngs)
        self.along_time = nnx.Conv(
            out_width, out_width, (3, 1, 1), dtype=dtype, kernel_init=zeros, rngs=rngs
        )
        if attends:
            self.norm_time = group_norm(out_width, dtype=dtype, rngs=rngs)
            self.to_frames = Attention(
                out_width,
                out_width,
                config.heads,
                route=config.attention,
                dtype=dtype,
                rngs=rngs,
            )
            kernel = self.to_frames.out.kernel
            kernel[...] = jnp.zeros_like(kernel[...])

    def __call__(self, image: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
        """Map ``[batch * frames, h, w, width]`` to ``[batch * frames, h, w, out_width]``."""
        image = super().__call__(image, time, text)
        shape = (-1, self.frames, *image.shape[1:])
        with jax.named_scope("along_time"):
            video = nnx.silu(self.norm(image)).reshape(shape)
            image = image + self.along_time(video).reshape(image.shape)
        if self.attends:
            with jax.named_scope("to_frames"):
                video = self.norm_time(image).reshape(shape)
                by_pixel = video.transpose(0, 2, 3, 1, 4)
                pixels = by_pixel.reshape(-1, self.frames, image.shape[-1])
                mixed = self.to_frames(pixels).reshape(by_pixel.shape)
                image = image + mixed.transpose(0, 3, 1, 2, 4).reshape(image.shape)
        return image


class UNet3D(UNet):
    """Predicts the noise in a video."""

    stage = VideoStage

    def __call__(self, image: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
        """Predict the noise.

        Args:
            image: Noisy videos, ``[batch, frames, size, size, 3]``.
            time: From 0 (no noise) to 1 (only noise), ``[batch]``.
            text: Captions' embeddings, ``[batch, text_tokens, text_width]``.

        Returns:
            ``[batch, frames, size, size, 3]`` in float32.
        """
        frames = image.shape[1]
        time, text = (jnp.repeat(part, frames, axis=0) for part in self.embed(time, text))
        noise = self.denoise(image.reshape(-1, *image.shape[2:]), time, text)
        return noise.reshape(image.shape)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """The UNet's training; ``hloscope.models.diffusion`` says what its step takes.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured(PRESETS[preset], settings, bad)

    def create(rngs: nnx.Rngs) -> UNet3D:
        return UNet3D(config, rngs=rngs)

    return diffusion_training("unet_3d", preset, config, create, UNet3D.__call__)
