"""A diffusion transformer over image and text together, in stages of three resolutions.

The blocks are those of Esser et al. (arXiv:2403.03206): two streams, each with
weights of its own and modulated by the time, meet in one attention over the
joined sequence; see ``hloscope.models.blocks.joint``. The stages form a U as in
Crowson et al. (arXiv:2401.11605): four image tokens become one on the way down,
one becomes four on the way up, beside what the way down kept. The text's tokens
pass through every stage; only their width changes.

It differs from the first paper in its objective, which is that of
``hloscope.models.diffusion``, and it is conditioned by the time alone, with no
pooled caption.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from hloscope.models.blocks.joint import JointBlock
from hloscope.models.blocks.layers import run_layers
from hloscope.models.blocks.modulation import Condition, ModulatedHead
from hloscope.models.blocks.patches import patches, unpatched
from hloscope.models.blocks.positions import grid_positions, position_tables
from hloscope.models.diffusion import DiffusionConfig, diffusion_training
from hloscope.models.sharding import pin
from hloscope.models.text_encoder import TextEncoderConfig
from hloscope.models.training import Training, configured

__all__ = ["PRESETS", "HierarchicalMMDiT", "MMDiTConfig", "training"]


@dataclass(frozen=True, kw_only=True)
class MMDiTConfig(DiffusionConfig):
    """Shapes of the transformer, beside those of every diffusion model.

    Attributes:
        patch: Height and width of the pixels that make one token of the first stage.
        widths: Channels of each stage, from the full resolution down, multiples
            of ``head_width``; each stage has a quarter of the image tokens of
            the one before.
        blocks: Blocks of each stage on the way down, and as many on the way up;
            of the last stage, blocks in the middle.
        head_width: Channels of an attention head, a multiple of 4.
        remat: See ``hloscope.models.blocks.layers``.
    """

    patch: int
    widths: tuple[int, ...]
    blocks: tuple[int, ...]
    head_width: int
    remat: str = "none"

    @property
    def sides(self) -> tuple[int, ...]:
        """Height and width of each stage's grid of image tokens."""
        return tuple(self.image_size // self.patch >> stage for stage in range(len(self.widths)))


PRESETS = {
    "smoke": MMDiTConfig(
        image_size=16,
        patch=2,
        widths=(48, 96),
        blocks=(1, 1),
        head_width=48,
        time_width=32,
        text_tokens=8,
        text_width=32,
        text_encoder=TextEncoderConfig(layers=12, heads=4, vocabulary=64),
        batch=8,
        learning_rate=2e-3,
    ),
    # Stages of 1101, 333 and 141 joint tokens: 52 million parameters, and 738 GFLOP
    # of products in a step.
    "small": MMDiTConfig(
        image_size=64,
        patch=2,
        widths=(192, 384, 768),
        blocks=(2, 1, 2),
        head_width=64,
        time_width=256,
        text_tokens=77,
        text_width=768,
        batch=16,
    ),
    # 667 million parameters.
    "base": MMDiTConfig(
        image_size=64,
        patch=2,
        widths=(384, 768, 1536),
        blocks=(4, 4, 6),
        head_width=64,
        time_width=768,
        text_tokens=77,
        text_width=768,
        batch=256,
        learning_rate=1e-4,
    ),
}


class Transition(nnx.Module):
    """Image and text to the width of the next stage.

    Args:
        widths: Channels of the text, in and out.
        image_widths: Channels of the image, in and out: of four tokens on the
            side of the finer stage, of one on the other.
        config: Shapes of the model.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        widths: tuple[int, int],
        image_widths: tuple[int, int],
        config: MMDiTConfig,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.image = nnx.Linear(*image_widths, dtype=config.dtype, rngs=rngs)
        self.text = nnx.Linear(*widths, dtype=config.dtype, rngs=rngs)


class HierarchicalMMDiT(nnx.Module):
    """Predicts the noise in an image, given its caption's embedding."""

    def __init__(self, config: MMDiTConfig, *, rngs: nnx.Rngs) -> None:
        dtype, widths, time_width = config.dtype, config.widths, config.time_width
        pixels = 3 * config.patch**2

        def linear(width: int, out_width: int) -> nnx.Linear:
            return nnx.Linear(width, out_width, dtype=dtype, rngs=rngs)

        def stage(level: int, *, last: bool = False) -> nnx.List[JointBlock]:
            depth = config.blocks[level]
            return nnx.List(
                JointBlock(
                    widths[level],
                    config.head_width,
                    time_width,
                    text_ends=last and index == depth - 1,
                    route=config.attention,
                    dtype=dtype,
                    rngs=rngs,
                )
                for index in range(depth)
            )

        def transition(level: int, *, up: bool) -> Transition:
            wide, narrow = widths[level + 1], widths[level]
            if up:
                return Transition((wide, narrow), (wide, 4 * narrow), config, rngs=rngs)
            return Transition((narrow, wide), (4 * narrow, wide), config, rngs=rngs)

        self.config = config
        self.condition = Condition(time_width, dtype=dtype, rngs=rngs)
        self.text_in = linear(config.text_width, widths[0])
        self.patch_in = linear(pixels, widths[0])
        outer = range(len(widths) - 1)
        self.down = nnx.List([stage(level) for level in outer])
        self.merge = nnx.List([transition(level, up=False) for level in outer])
        self.middle = stage(len(widths) - 1)
        # The way up, by level: the last to run is the first.
        self.expand = nnx.List([transition(level, up=True) for level in outer])
        self.join = nnx.List([linear(2 * widths[level], widths[level]) for level in outer])
        self.up = nnx.List([stage(level, last=level == 0) for level in outer])
        self.head = ModulatedHead(widths[0], pixels, time_width, dtype=dtype, rngs=rngs)

    def __call__(
        self,
        image: jax.Array,
        time: jax.Array,
        text: jax.Array,
        positions: Sequence[Any],
    ) -> jax.Array:
        """Predict the noise.

        Args:
            image: Noisy images, ``[batch, size, size, 3]``.
            time: From 0 (no noise) to 1 (only noise), ``[batch]``.
            text: Captions' embeddings, ``[batch, text_tokens, text_width]``.
            positions: Table of each stage, float32, ``[image tokens, width]``.

        Returns:
            ``[batch, size, size, 3]`` in float32.
        """
        dtype, patch, sides = self.config.dtype, self.config.patch, self.config.sides
        with jax.named_scope("time"):
            condition = self.condition(time)

        def run(scope: str, blocks: Sequence[JointBlock], *streams: jax.Array) -> Any:
            remat = self.config.remat
            return run_layers(blocks, streams, condition, remat=remat, scope=scope)[0]

        with jax.named_scope("text_in"):
            text = pin(self.text_in(text))
        with jax.named_scope("patch_in"):
            image = self.patch_in(patches(image.astype(dtype), patch))
            image = pin((image + positions[0]).astype(dtype))
        kept: list[jax.Array] = []
        for level, blocks in enumerate(self.down):
            image, text = run(f"down_{level}", blocks, image, text)
            kept.append(image)
            with jax.named_scope(f"merge_{level}"):
                image = self.merge[level].image(patches(_grid(image, sides[level]), 2))
                image = pin((image + positions[level + 1]).astype(dtype))
                text = pin(self.merge[level].text(text))
        image, text = run("middle", self.middle, image, text)
        for level in reversed(range(len(self.up))):
            with jax.named_scope(f"expand_{level}"):
                image = unpatched(self.expand[level].image(image), sides[level], 2)
                image = image.reshape(kept[level].shape)
                image = self.join[level](jnp.concatenate((image, kept[level]), axis=-1))
                image, text = pin(image), pin(self.expand[level].text(text))
            image, text = run(f"up_{level}", self.up[level], image, text)
        with jax.named_scope("patch_out"):
            noise = self.head(image, condition)
            return unpatched(noise, self.config.image_size, patch).astype(jnp.float32)


def training(preset: str, settings: Mapping[str, str], bad: Collection[str] = ()) -> Training:
    """The transformer's training; ``hloscope.models.diffusion`` says what its step takes.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
    """
    config = configured(PRESETS[preset], settings, bad)

    def create(rngs: nnx.Rngs) -> HierarchicalMMDiT:
        return HierarchicalMMDiT(config, rngs=rngs)

    tables = position_tables(
        lambda array: [
            grid_positions(side, width, array)
            for side, width in zip(config.sides, config.widths, strict=True)
        ],
        config.batch,
        baked="baked-table" in config.bad,
    )

    return diffusion_training(
        "hierarchical_mmdit", preset, config, create, HierarchicalMMDiT.__call__, tables
    )


def _grid(tokens: jax.Array, side: int) -> jax.Array:
    return tokens.reshape(tokens.shape[0], side, side, tokens.shape[-1])
