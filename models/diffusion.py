"""Training that predicts the noise in an image, given a caption's embedding.

The step of every diffusion model: it takes ``state``; ``batch`` with ``image``
(uint8, ``[batch, size, size, 3]``) and ``text``
(``[batch, text_tokens, text_width]``); ``key``, the same for every step, into
which the step's number is folded; and ``null_text``, the embedding of the empty
caption (``[text_tokens, text_width]``), which is encoded once, not in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from hloscope.ir.signature import Role
from hloscope.models.blocks import AttentionRoute
from hloscope.models.sharding import Constrain
from hloscope.models.training import Learner, State, Training, adamw

__all__ = ["Denoise", "DiffusionConfig", "diffusion_training"]

# Of the captions, this share is replaced by the null condition, so that one
# model learns both terms of classifier-free guidance (arXiv:2207.12598).
NULL_SHARE = 0.1

Denoise = Callable[[Any, jax.Array, jax.Array, jax.Array, Constrain], jax.Array]
"""From the model, noisy images, times, captions and a constraint to the noise."""


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig:
    """Shapes that every diffusion model has, and those of its training batch.

    Attributes:
        image_size: Height and width of the image in pixels.
        text_tokens: Tokens of a caption's embedding.
        text_width: Channels of a caption's embedding.
        time_width: Channels of the time embedding.
        batch: Images in a step.
        dtype: Of activations and products.
        attention: See ``hloscope.models.blocks.attend``.
        learning_rate: Of AdamW.
    """

    image_size: int
    text_tokens: int
    text_width: int
    time_width: int
    batch: int
    dtype: DTypeLike = jnp.bfloat16
    attention: AttentionRoute = "xla"
    learning_rate: float = 2e-4


def diffusion_training(
    arch: str,
    preset: str,
    config: DiffusionConfig,
    create: Callable[[nnx.Rngs], nnx.Module],
    denoise: Denoise,
) -> Training:
    """The training of one diffusion model.

    Args:
        arch: The architecture's name; the step is called after it.
        preset: Name of the size.
        config: The model's shapes.
        create: The model's constructor.
        denoise: How the model is called.
    """
    learner = Learner(create, adamw(config.learning_rate))

    def make_step(constrain: Constrain) -> Any:
        def step(
            state: State, batch: Mapping[str, jax.Array], key: jax.Array, null_text: jax.Array
        ) -> tuple[State, dict[str, jax.Array]]:
            key = jax.random.fold_in(key, state["step"])
            return learner.update(
                state,
                lambda model: _noise_loss(
                    partial(denoise, model), batch, key, null_text, constrain
                ),
            )

        step.__name__ = step.__qualname__ = f"{arch}_step"
        return step

    def example(key: jax.Array) -> tuple[Any, ...]:
        pixels, captions, empty, steps = jax.random.split(key, 4)
        image_shape = (config.batch, config.image_size, config.image_size, 3)
        text_shape = (config.text_tokens, config.text_width)
        batch = {
            "image": jax.random.randint(pixels, image_shape, 0, 256).astype(jnp.uint8),
            "text": jax.random.normal(captions, (config.batch, *text_shape), config.dtype),
        }
        return batch, steps, jax.random.normal(empty, text_shape, config.dtype)

    return Training(
        name=f"{arch} ({preset})",
        make_step=make_step,
        init=learner.init,
        example=example,
        roles=(Role.BATCH, Role.RNG, Role.FROZEN),
    )


def _noise_loss(
    denoise: Callable[[jax.Array, jax.Array, jax.Array, Constrain], jax.Array],
    batch: Mapping[str, jax.Array],
    key: jax.Array,
    null_text: jax.Array,
    constrain: Constrain,
) -> jax.Array:
    """Mean squared error of the predicted noise at random times.

    The noise's share follows the cosine schedule of Nichol and Dhariwal
    (arXiv:2102.09672) with no offset, evaluated at a continuous time.
    """
    with jax.named_scope("diffuse"):
        time_key, noise_key, null_key = jax.random.split(key, 3)
        image = batch["image"].astype(jnp.float32) / 127.5 - 1
        size = image.shape[0]
        time = jax.random.uniform(time_key, (size,))
        noise = constrain(jax.random.normal(noise_key, image.shape))
        angle = (jnp.pi / 2 * time)[:, None, None, None]
        noisy = jnp.cos(angle) * image + jnp.sin(angle) * noise
        dropped = jax.random.bernoulli(null_key, NULL_SHARE, (size, 1, 1))
        text = jnp.where(dropped, null_text, batch["text"])
    predicted = denoise(noisy, time, text, constrain)
    with jax.named_scope("loss"):
        return jnp.mean(jnp.square(predicted - noise))
