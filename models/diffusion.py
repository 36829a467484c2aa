"""Training that predicts the noise in an image or a video, given a caption's embedding.

The step of every diffusion model: it takes ``state``; ``batch`` with ``image``
(uint8, ``[batch, size, size, 3]``), or ``video`` with the frames behind the
batch, and ``text`` (``[batch, text_tokens, text_width]``); ``key``, the same for
every step, into which the step's number is folded; and ``null_text``, the
embedding of the empty caption (``[text_tokens, text_width]``), which is encoded
once, not in the step.

Two bad examples take something else. With ``per-step-null`` the last argument
is the empty caption's tokens and a frozen text encoder, which encodes them in
every step. With ``closed-over`` the batch has no ``text``: the step holds the
captions itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hloscope.ir.signature import Role
from hloscope.models.blocks.positions import PositionTables
from hloscope.models.sharding import pin
from hloscope.models.text_encoder import TextEncoder, TextEncoderConfig
from hloscope.models.training import Learner, State, Training, TrainingConfig, parameters_of

__all__ = ["DiffusionConfig", "diffusion_training"]

# Of the captions, this share is replaced by the null condition, so that one
# model learns both terms of classifier-free guidance (arXiv:2207.12598).
NULL_SHARE = 0.1

# CLIP's, which a caption of 77 tokens and 768 channels comes from.
_TEXT_ENCODER = TextEncoderConfig(layers=12, heads=12, vocabulary=49408)


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig(TrainingConfig):
    """Shapes that every diffusion model has, and those of its training batch.

    Attributes:
        image_size: Height and width of the image in pixels.
        frames: Images of a video; ``None`` for one image.
        text_tokens: Tokens of a caption's embedding.
        text_width: Channels of a caption's embedding.
        time_width: Channels of the time embedding.
        text_encoder: What encodes the empty caption where the step does.
    """

    image_size: int
    frames: int | None = None
    text_tokens: int
    text_width: int
    time_width: int
    text_encoder: TextEncoderConfig = _TEXT_ENCODER

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of one image or video, colours last."""
        frames = () if self.frames is None else (self.frames,)
        return (*frames, self.image_size, self.image_size, 3)


def diffusion_training(
    arch: str,
    preset: str,
    config: DiffusionConfig,
    create: Callable[[nnx.Rngs], nnx.Module],
    denoise: Callable[..., jax.Array],
    tables: PositionTables | None = None,
) -> Training:
    """The training of one diffusion model.

    Args:
        arch: The architecture's name; the step is called after it.
        preset: Name of the size.
        config: The model's shapes.
        create: The model's constructor.
        denoise: How the model is called: from it, noisy images or videos, times,
            captions and, where there are some, tables to the noise.
        tables: The model's tables of positions.
    """
    learner = Learner(create, config)
    kind = "image" if config.frames is None else "video"
    text_shape = (config.text_tokens, config.text_width)
    captions = _drawn_captions(config) if "closed-over" in config.bad else None
    encode = _encoder(config) if "per-step-null" in config.bad else None

    def step(
        state: State, batch: Mapping[str, jax.Array], key: jax.Array, null_text: Any
    ) -> tuple[State, dict[str, jax.Array]]:
        key = jax.random.fold_in(key, state["step"])
        text = batch["text"] if captions is None else captions
        if encode is not None:
            with jax.named_scope("null_text"):
                null_text = encode(null_text["encoder"], null_text["tokens"])

        def loss(model: Any) -> jax.Array:
            def predict(noisy: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
                positions = () if tables is None else (tables(),)
                return denoise(model, noisy, time, text, *positions)

            return _noise_loss(predict, batch[kind], text, key, null_text)

        return learner.update(state, loss)

    step.__name__ = step.__qualname__ = f"{arch}_step"

    def example(key: jax.Array) -> tuple[Any, ...]:
        pixels, words, empty, steps = jax.random.split(key, 4)
        samples = jax.random.randint(pixels, (config.batch, *config.sample_shape), 0, 256)
        batch = {kind: samples.astype(jnp.uint8)}
        if captions is None:
            batch["text"] = jax.random.normal(words, (config.batch, *text_shape), config.dtype)
        if encode is None:
            return batch, steps, jax.random.normal(empty, text_shape, config.dtype)
        _, encoder = parameters_of(_text_encoder(config, nnx.Rngs(params=empty)))
        return batch, steps, {"encoder": encoder, "tokens": jnp.zeros(text_shape[:1], jnp.int32)}

    return Training(
        name=f"{arch} ({preset})",
        step=step,
        init=learner.init,
        example=example,
        roles=(Role.BATCH, Role.RNG, Role.FROZEN),
        counts=config.counts,
        donates="undonated-state" not in config.bad,
    )


def _noise_loss(
    predict: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    samples: jax.Array,
    text: Any,
    key: jax.Array,
    null_text: jax.Array,
) -> jax.Array:
    """Mean squared error of the predicted noise at random times.

    The noise's share follows the cosine schedule of Nichol and Dhariwal
    (arXiv:2102.09672) with no offset, evaluated at a continuous time.
    """
    with jax.named_scope("diffuse"):
        time_key, noise_key, null_key = jax.random.split(key, 3)
        samples = samples.astype(jnp.float32) / 127.5 - 1
        number, *shape = samples.shape
        time = jax.random.uniform(time_key, (number,))
        noise = pin(jax.random.normal(noise_key, samples.shape))
        angle = (jnp.pi / 2 * time).reshape(number, *(1 for _ in shape))
        noisy = jnp.cos(angle) * samples + jnp.sin(angle) * noise
        dropped = jax.random.bernoulli(null_key, NULL_SHARE, (number, 1, 1))
        text = jnp.where(dropped, null_text, text)
    predicted = predict(noisy, time, text)
    with jax.named_scope("loss"):
        return jnp.mean(jnp.square(predicted - noise))


def _drawn_captions(config: DiffusionConfig) -> np.ndarray[Any, Any]:
    """Embeddings for a whole batch in float32, as ``np.load`` gives them."""
    shape = (config.batch, config.text_tokens, config.text_width)
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _text_encoder(config: DiffusionConfig, rngs: nnx.Rngs) -> TextEncoder:
    return TextEncoder(config.text_width, config.text_encoder, dtype=config.dtype, rngs=rngs)


def _encoder(config: DiffusionConfig) -> Callable[[Any, jax.Array], jax.Array]:
    """From an encoder's parameters and a caption's tokens to its embedding."""
    graphdef, _ = parameters_of(nnx.eval_shape(lambda: _text_encoder(config, nnx.Rngs(0))))

    def encode(params: Any, tokens: jax.Array) -> jax.Array:
        encoder: TextEncoder = nnx.merge(graphdef, params)
        return encoder(tokens)

    return encode
