"""Training that predicts the features of what is hidden from those of what is seen.

The joint-embedding predictive architecture of Assran et al. (I-JEPA,
arXiv:2301.08243): an encoder sees a part of an image's patches, a predictor
tells from its features those of the hidden patches, and what it should have
told comes from a second encoder that sees all. That one's parameters follow the
first's as a moving average, and no gradient reaches them. It differs from the
paper in what is hidden: patches drawn one by one, not in blocks; in a video the
same places in all frames, as in VideoMAE (Tong et al., arXiv:2203.12602).

The step takes ``state``, which holds the second encoder's parameters as
``target``; ``batch`` with ``image`` (uint8, ``[batch, size, size, 3]``) or
``video`` with the frames behind the batch; and ``key``, the same for every step,
into which the step's number is folded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from hloscope.ir.signature import Role
from hloscope.models.blocks.layers import make_layers, run_layers
from hloscope.models.blocks.patches import patches
from hloscope.models.blocks.positions import grid_positions, line_positions, position_tables
from hloscope.models.sharding import pin
from hloscope.models.training import (
    Learner,
    State,
    Training,
    TrainingConfig,
    configured,
    parameters_of,
)

__all__ = ["Encoder", "Jepa", "JepaConfig", "MakeBlock", "jepa_training"]


@dataclass(frozen=True, kw_only=True)
class JepaConfig(TrainingConfig):
    """Shapes of encoder and predictor, and of their training batch.

    Attributes:
        image_size: Height and width of the image in pixels.
        frames: Images of a video; ``None`` for one image.
        patch: Height and width of the pixels that make one token.
        visible: Places of an image that the encoder sees; the rest is predicted.
        width: Channels of the encoder's tokens, a multiple of 4.
        heads: Attention heads of the encoder.
        layers: Layers of the encoder.
        predictor_width: Channels of the predictor's tokens, a multiple of 4.
        predictor_heads: Attention heads of the predictor.
        predictor_layers: Layers of the predictor.
        momentum: Share of the moving average that a step keeps.
        remat: See ``hloscope.models.blocks.layers``.
        scan_layers: Whether one loop runs over stacked layers.
    """

    image_size: int
    frames: int | None = None
    patch: int
    visible: int
    width: int
    heads: int
    layers: int
    predictor_width: int
    predictor_heads: int
    predictor_layers: int
    momentum: float = 0.996
    remat: str = "none"
    scan_layers: bool = True

    @property
    def side(self) -> int:
        """Height and width of the grid of an image's tokens."""
        return self.image_size // self.patch

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """What ``tensor`` splits."""
        heads = {"heads": self.heads, "heads of the predictor": self.predictor_heads}
        return {"tensor": heads}


class MakeBlock(Protocol):
    """Makes a layer of encoder or predictor."""

    def __call__(
        self, config: JepaConfig, width: int, heads: int, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> nnx.Module:
        """Make a layer of that width, which maps tokens to tokens."""


class Encoder(nnx.Module):
    """From patches to features."""

    def __init__(self, config: JepaConfig, block: MakeBlock, *, rngs: nnx.Rngs) -> None:
        self.config = config
        self.patch_in = nnx.Linear(3 * config.patch**2, config.width, dtype=config.dtype, rngs=rngs)
        self.blocks = make_layers(
            lambda rngs: block(config, config.width, config.heads, config.dtype, rngs),
            config.layers,
            scan=config.scan_layers,
            rngs=rngs,
        )
        self.norm = nnx.LayerNorm(config.width, dtype=config.dtype, rngs=rngs)

    def __call__(self, samples: jax.Array, positions: Any, seen: jax.Array | None) -> jax.Array:
        """Encode what is seen.

        Args:
            samples: Cut into patches, ``[batch, frames, places, channels]``.
            positions: Float32, ``[frames, places, width]``, or that for each sample.
            seen: Which places, ``[batch, visible]``; all of them where ``None``.

        Returns:
            ``[batch, frames, places, width]``, of the places that are seen.
        """
        tokens = self.patch_in(samples.astype(self.config.dtype)) + positions
        tokens = tokens.astype(self.config.dtype)
        mixed = _run(self.blocks, _at(tokens, seen), self.config.remat)
        features: jax.Array = self.norm(mixed)
        return features


class Predictor(nnx.Module):
    """From the features of what is seen to those of what is not."""

    def __init__(self, config: JepaConfig, block: MakeBlock, *, rngs: nnx.Rngs) -> None:
        width = config.predictor_width
        self.config = config
        dtype = self.dtype = jnp.float32 if "float32-head" in config.bad else config.dtype
        self.features_in = nnx.Linear(config.width, width, dtype=dtype, rngs=rngs)
        self.hidden = nnx.Param(0.02 * jax.random.normal(rngs.params(), (width,)))
        self.blocks = make_layers(
            lambda rngs: block(config, width, config.predictor_heads, dtype, rngs),
            config.predictor_layers,
            scan=config.scan_layers,
            rngs=rngs,
        )
        self.norm = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.out = nnx.Linear(width, config.width, dtype=dtype, rngs=rngs)

    def __call__(
        self,
        features: jax.Array,
        positions: Any,
        seen: jax.Array,
        hidden: jax.Array,
    ) -> jax.Array:
        """Predict the features at the hidden places.

        Args:
            features: ``[batch, frames, visible, width]``.
            positions: Float32, ``[frames, places, predictor_width]``, or that for
                each sample.
            seen: Places of the features, ``[batch, visible]``.
            hidden: The other places, ``[batch, places - visible]``.

        Returns:
            ``[batch, frames, places - visible, width]``.
        """
        batch, frames, _, _ = features.shape
        shape = (batch, *jnp.shape(positions)[-3:])
        positions = jnp.broadcast_to(positions, shape)
        asked = jnp.broadcast_to(self.hidden[...], (batch, frames, hidden.shape[1], shape[-1]))
        tokens = jnp.concatenate(
            (
                self.features_in(features.astype(self.dtype)) + _at(positions, seen),
                asked + _at(positions, hidden),
            ),
            axis=2,
        ).astype(self.dtype)
        tokens = _run(self.blocks, tokens, self.config.remat)
        predicted: jax.Array = self.out(self.norm(tokens[:, :, seen.shape[1] :]))
        return predicted


class Jepa(nnx.Module):
    """What the gradient reaches: the encoder of what is seen, and the predictor."""

    def __init__(self, config: JepaConfig, block: MakeBlock, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, block, rngs=rngs)
        self.predictor = Predictor(config, block, rngs=rngs)


def jepa_training(
    arch: str,
    preset: str,
    presets: Mapping[str, JepaConfig],
    settings: Mapping[str, str],
    bad: Collection[str],
    block: MakeBlock,
) -> Training:
    """The training of one family.

    Args:
        arch: The architecture's name.
        preset: Name of the size.
        presets: The family's configurations.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.
        block: Makes a layer of encoder and predictor.
    """
    config = configured(presets[preset], settings, bad)
    kind = "image" if config.frames is None else "video"
    shape = () if config.frames is None else (config.frames,)
    shape = (config.batch, *shape, config.image_size, config.image_size, 3)

    def create(rngs: nnx.Rngs) -> Jepa:
        return Jepa(config, block, rngs=rngs)

    learner = Learner(create, config)
    graphdef, _ = parameters_of(nnx.eval_shape(lambda: create(nnx.Rngs(0)).encoder))
    tables = position_tables(_tables_of(config), config.batch, baked="baked-table" in config.bad)

    def init(key: jax.Array) -> State:
        state = learner.init(key)
        return {**state, "target": jax.tree.map(jnp.copy, state["params"]["encoder"])}

    def step(
        state: State, batch: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[State, dict[str, jax.Array]]:
        key = jax.random.fold_in(key, state["step"])
        places, predictor_places = tables()
        with jax.named_scope("patches"):
            samples = _cut(batch[kind], config)
            seen, hidden = _drawn_places(key, config)
        with jax.named_scope("target"):
            target: Encoder = nnx.merge(graphdef, state["target"])
            wanted = _normed(_at(target(samples, places, None), hidden))

        def loss(model: Jepa) -> jax.Array:
            with jax.named_scope("encoder"):
                features = model.encoder(samples, places, seen)
            with jax.named_scope("predictor"):
                told = model.predictor(features, predictor_places, seen, hidden)
            with jax.named_scope("loss"):
                return jnp.mean(jnp.square(told.astype(jnp.float32) - wanted))

        following, metrics = learner.update(state, loss)
        with jax.named_scope("moving_average"):
            average = jax.tree.map(
                lambda old, new: old + (1 - config.momentum) * (new - old),
                state["target"],
                following["params"]["encoder"],
            )
        return {**following, "target": average}, metrics

    step.__name__ = step.__qualname__ = f"{arch}_step"

    def example(key: jax.Array) -> tuple[Any, ...]:
        pixels, steps = jax.random.split(key)
        samples = jax.random.randint(pixels, shape, 0, 256).astype(jnp.uint8)
        return {kind: samples}, steps

    return Training(
        name=f"{arch} ({preset})",
        step=step,
        init=init,
        example=example,
        roles=(Role.BATCH, Role.RNG),
        counts=config.counts,
        donates="undonated-state" not in config.bad,
    )


def _tables_of(config: JepaConfig) -> Callable[[Any], list[Any]]:
    """Tables ``[frames, places, width]`` of the encoder and of the predictor."""

    def make(array: Any) -> list[Any]:
        made = []
        for width in (config.width, config.predictor_width):
            grid = grid_positions(config.side, width, array)[None]
            if config.frames is not None:
                grid = grid + line_positions(config.frames, width, array)[:, None]
            made.append(grid)
        return made

    return make


def _cut(samples: jax.Array, config: JepaConfig) -> jax.Array:
    """Pixels from -1 to 1 as ``[batch, frames, places, channels]``."""
    images = samples.reshape(-1, config.image_size, config.image_size, 3)
    cut = patches(images.astype(jnp.float32) / 127.5 - 1, config.patch)
    return cut.reshape(samples.shape[0], -1, *cut.shape[1:])


def _drawn_places(key: jax.Array, config: JepaConfig) -> tuple[jax.Array, jax.Array]:
    """Places of each sample that are seen, and those that are not: int32."""
    drawn = jax.random.uniform(key, (config.batch, config.side**2))
    order = jnp.argsort(drawn, axis=-1)
    return order[:, : config.visible], order[:, config.visible :]


def _at(tokens: jax.Array, places: jax.Array | None) -> jax.Array:
    """Of ``[batch, frames, places, width]`` those at each sample's places."""
    if places is None:
        return tokens
    return jnp.take_along_axis(tokens, places[:, None, :, None], axis=2)


def _run(blocks: Any, tokens: jax.Array, remat: str) -> jax.Array:
    """Run layers that take the frames one behind the other."""
    batch, frames, places, width = tokens.shape
    flat = pin(tokens.reshape(batch, frames * places, width))
    mixed, _ = run_layers(blocks, flat, remat=remat)
    out: jax.Array = mixed.reshape(tokens.shape)
    return out


def _normed(features: jax.Array) -> jax.Array:
    """Features with mean 0 and variance 1, in float32."""
    features = features.astype(jnp.float32)
    centred = features - jnp.mean(features, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-6)
