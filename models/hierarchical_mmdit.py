"""A diffusion transformer over image and text together, in stages of three resolutions.

The blocks are those of Esser et al. (arXiv:2403.03206): two streams, each with
weights of its own and modulated by the time (adaLN-zero, Peebles and Xie,
arXiv:2212.09748), meet in one attention over the joined sequence. The stages
form a U as in Crowson et al. (arXiv:2401.11605): four image tokens become one
on the way down, one becomes four on the way up, beside what the way down kept.
The text's tokens pass through every stage; only their width changes.

It differs from the first paper in its MLPs, which are gated (with as many
parameters), and in its objective, which is that of ``hloscope.models.diffusion``;
and it is conditioned by the time alone, with no pooled caption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hloscope.models.blocks import GatedMlp, attend, grid_positions, sinusoidal_embedding
from hloscope.models.diffusion import DiffusionConfig, diffusion_training
from hloscope.models.remat import layer_function
from hloscope.models.sharding import Constrain
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
        remat: See ``hloscope.models.remat``.
        positions: ``computed`` in the step, or ``baked`` into it as constants.
    """

    patch: int
    widths: tuple[int, ...]
    blocks: tuple[int, ...]
    head_width: int
    remat: str = "none"
    positions: str = "computed"

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
}


class Stream(nnx.Module):
    """One modality's weights of a block.

    Args:
        width: Channels of the tokens.
        config: Shapes of the model.
        ends: Whether nothing reads these tokens after the block's attention, so
            that they only give it keys and values.
        rngs: Source of the initial parameters.
    """

    def __init__(self, width: int, config: MMDiTConfig, *, ends: bool, rngs: nnx.Rngs) -> None:
        dtype, heads = config.dtype, width // config.head_width
        self.ends = ends
        self.heads = heads
        self.modulation = _modulation(width, 2 if ends else 6, config, rngs=rngs)
        self.norm1 = _norm(width, config, rngs=rngs)
        joined = 2 * width if ends else 3 * width
        self.key_value_query = nnx.Linear(width, joined, use_bias=False, dtype=dtype, rngs=rngs)
        self.norm_key = nnx.RMSNorm(config.head_width, dtype=dtype, rngs=rngs)
        if not ends:
            self.norm_query = nnx.RMSNorm(config.head_width, dtype=dtype, rngs=rngs)
            self.out = nnx.Linear(width, width, use_bias=False, dtype=dtype, rngs=rngs)
            self.norm2 = _norm(width, config, rngs=rngs)
            # Three products of 8/3 of the width: as many parameters as two of 4.
            self.mlp = GatedMlp(width, 8 * width // 3, dtype=dtype, rngs=rngs)

    def modulate(self, condition: jax.Array) -> list[jax.Array]:
        """Shift and scale before the attention; unless it ends, its gate and the MLP's three.

        Args:
            condition: ``[batch, time_width]``.

        Returns:
            Two or six of ``[batch, 1, width]``.
        """
        return jnp.split(self.modulation(condition)[:, None], 2 if self.ends else 6, axis=-1)

    def heads_of(self, tokens: jax.Array, shift: jax.Array, scale: jax.Array) -> list[jax.Array]:
        """Keys, values and, unless it ends, queries: ``[batch, tokens, heads, head_width]``."""
        joined = self.key_value_query(self.norm1(tokens) * (1 + scale) + shift)
        parts = jnp.split(joined, 2 if self.ends else 3, axis=-1)
        key, value, *query = (part.reshape(*tokens.shape[:2], self.heads, -1) for part in parts)
        return [self.norm_key(key), value, *(self.norm_query(part) for part in query)]

    def __call__(
        self, tokens: jax.Array, attended: jax.Array, modulation: Sequence[jax.Array]
    ) -> jax.Array:
        """Add to ``tokens`` what the attention gave them, then what the MLP does.

        Args:
            tokens: ``[batch, tokens, width]``.
            attended: ``[batch, tokens, heads, head_width]``.
            modulation: The last four of what ``modulate`` gives.
        """
        gate1, shift2, scale2, gate2 = modulation
        with jax.named_scope("attention"):
            tokens = tokens + gate1 * self.out(attended.reshape(tokens.shape))
        with jax.named_scope("mlp"):
            return tokens + gate2 * self.mlp(self.norm2(tokens) * (1 + scale2) + shift2)


class JointBlock(nnx.Module):
    """Attention of both streams' tokens to all of them, and an MLP in each.

    Args:
        width: Channels of the tokens.
        config: Shapes of the model.
        text_ends: Whether nothing reads the text after this block.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self, width: int, config: MMDiTConfig, *, text_ends: bool = False, rngs: nnx.Rngs
    ) -> None:
        self.image = Stream(width, config, ends=False, rngs=rngs)
        self.text = Stream(width, config, ends=text_ends, rngs=rngs)
        self.route = config.attention

    def __call__(
        self, image: jax.Array, text: jax.Array, condition: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Map ``[batch, tokens, width]`` of image and text to the same shapes.

        A text that ends here comes back as it was.
        """
        with jax.named_scope("modulation"):
            image_modulation = self.image.modulate(condition)
            text_modulation = self.text.modulate(condition)
        with jax.named_scope("attention"):
            of_image = self.image.heads_of(image, *image_modulation[:2])
            of_text = self.text.heads_of(text, *text_modulation[:2])
            key, value = (
                jnp.concatenate(pair, axis=1)
                for pair in zip(of_text[:2], of_image[:2], strict=True)
            )
            query = jnp.concatenate((*of_text[2:], of_image[2]), axis=1)
            attended = attend(query, key, value, causal=False, route=self.route)
        with jax.named_scope("image"):
            image_attended = attended[:, -image.shape[1] :]
            image = self.image(image, image_attended, image_modulation[2:])
        if not self.text.ends:
            with jax.named_scope("text"):
                text = self.text(text, attended[:, : text.shape[1]], text_modulation[2:])
        return image, text


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
                JointBlock(widths[level], config, text_ends=last and index == depth - 1, rngs=rngs)
                for index in range(depth)
            )

        def transition(level: int, *, up: bool) -> Transition:
            wide, narrow = widths[level + 1], widths[level]
            if up:
                return Transition((wide, narrow), (wide, 4 * narrow), config, rngs=rngs)
            return Transition((narrow, wide), (4 * narrow, wide), config, rngs=rngs)

        self.config = config
        self.time_in = linear(time_width, time_width)
        self.time_out = linear(time_width, time_width)
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
        self.norm_out = _norm(widths[0], config, rngs=rngs)
        self.modulation_out = _modulation(widths[0], 2, config, rngs=rngs)
        self.patch_out = nnx.Linear(
            widths[0], pixels, dtype=dtype, kernel_init=nnx.initializers.zeros, rngs=rngs
        )

    def __call__(
        self,
        image: jax.Array,
        time: jax.Array,
        text: jax.Array,
        constrain: Constrain,
        positions: Sequence[jax.Array | np.ndarray[Any, Any]],
    ) -> jax.Array:
        """Predict the noise.

        Args:
            image: Noisy images, ``[batch, size, size, 3]``.
            time: From 0 (no noise) to 1 (only noise), ``[batch]``.
            text: Captions' embeddings, ``[batch, text_tokens, text_width]``.
            constrain: Applied to the activations between blocks.
            positions: Table of each stage, float32, ``[image tokens, width]``.

        Returns:
            ``[batch, size, size, 3]`` in float32.
        """
        dtype, patch, sides = self.config.dtype, self.config.patch, self.config.sides
        with jax.named_scope("time"):
            time = sinusoidal_embedding(time, self.config.time_width).astype(dtype)
            condition = nnx.silu(self.time_out(nnx.silu(self.time_in(time))))

        def run(
            scope: str, blocks: Sequence[JointBlock], image: jax.Array, text: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            for index, block in enumerate(blocks):
                call, params = layer_function(block, self.config.remat)
                with jax.named_scope(f"{scope}_{index}"):
                    image, text = map(constrain, call(params, image, text, condition))
            return image, text

        with jax.named_scope("text_in"):
            text = constrain(self.text_in(text))
        with jax.named_scope("patch_in"):
            image = self.patch_in(patches(image.astype(dtype), patch))
            image = constrain((image + positions[0]).astype(dtype))
        kept: list[jax.Array] = []
        for level, blocks in enumerate(self.down):
            image, text = run(f"down_{level}", blocks, image, text)
            kept.append(image)
            with jax.named_scope(f"merge_{level}"):
                image = self.merge[level].image(patches(_grid(image, sides[level]), 2))
                image = constrain((image + positions[level + 1]).astype(dtype))
                text = constrain(self.merge[level].text(text))
        image, text = run("middle", self.middle, image, text)
        for level in reversed(range(len(self.up))):
            with jax.named_scope(f"expand_{level}"):
                image = unpatched(self.expand[level].image(image), sides[level], 2)
                image = image.reshape(kept[level].shape)
                image = self.join[level](jnp.concatenate((image, kept[level]), axis=-1))
                image, text = constrain(image), constrain(self.expand[level].text(text))
            image, text = run(f"up_{level}", self.up[level], image, text)
        with jax.named_scope("patch_out"):
            shift, scale = jnp.split(self.modulation_out(condition)[:, None], 2, axis=-1)
            noise = self.patch_out(self.norm_out(image) * (1 + scale) + shift)
            return unpatched(noise, self.config.image_size, patch).astype(jnp.float32)


def training(preset: str, settings: Mapping[str, str]) -> Training:
    """The transformer's training; ``hloscope.models.diffusion`` says what its step takes.

    Args:
        preset: A key of ``PRESETS``.
        settings: Options as the registry checked them.
    """
    config = configured(PRESETS[preset], settings)

    def create(rngs: nnx.Rngs) -> HierarchicalMMDiT:
        return HierarchicalMMDiT(config, rngs=rngs)

    shapes = tuple(zip(config.sides, config.widths, strict=True))
    position_tables = (
        tuple(grid_positions(side, width, np) for side, width in shapes)
        if config.positions == "baked"
        else None
    )

    def denoise(
        model: HierarchicalMMDiT,
        image: jax.Array,
        time: jax.Array,
        text: jax.Array,
        constrain: Constrain,
    ) -> jax.Array:
        positions = position_tables
        if positions is None:
            with jax.named_scope("positions"):
                positions = tuple(grid_positions(side, width, jnp) for side, width in shapes)
        return model(image, time, text, constrain, positions)

    return diffusion_training("hierarchical_mmdit", preset, config, create, denoise)


def patches(grid: jax.Array, size: int) -> jax.Array:
    """Cut ``[batch, h, w, channels]`` into squares of ``size``, row by row.

    Returns:
        ``[batch, h * w / size ** 2, size ** 2 * channels]``.
    """
    batch, height, width, channels = grid.shape
    cut = grid.reshape(batch, height // size, size, width // size, size, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(
        batch, height * width // size**2, size**2 * channels
    )


def unpatched(tokens: jax.Array, side: int, size: int) -> jax.Array:
    """Put ``patches`` of a square grid together again: ``[batch, side, side, channels]``."""
    batch = tokens.shape[0]
    cut = tokens.reshape(batch, side // size, side // size, size, size, -1)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, side, side, -1)


def _grid(tokens: jax.Array, side: int) -> jax.Array:
    return tokens.reshape(tokens.shape[0], side, side, tokens.shape[-1])


def _norm(width: int, config: MMDiTConfig, *, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """A norm that leaves scale and shift to the modulation behind it."""
    return nnx.LayerNorm(width, use_bias=False, use_scale=False, dtype=config.dtype, rngs=rngs)


def _modulation(width: int, parts: int, config: MMDiTConfig, *, rngs: nnx.Rngs) -> nnx.Linear:
    """Starts at zero, so that each block starts as the identity."""
    return nnx.Linear(
        config.time_width,
        parts * width,
        dtype=config.dtype,
        kernel_init=nnx.initializers.zeros,
        rngs=rngs,
    )
