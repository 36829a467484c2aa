"""Next-token prediction: what every language model's training step is, whatever mixes its tokens.

The vocabulary head's product keeps float32 operands, as many training codes do
for the loss's sake. Its logits are the largest array of such a step. With
``head_chunks`` the head and the loss run over parts of each sequence, one after
another, and the backward pass computes a part's logits again, so that those of
one part live at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from hloscope.errors import UsageError
from hloscope.ir.signature import Role
from hloscope.models.sharding import Constrain
from hloscope.models.training import Learner, State, Training, TrainingConfig

__all__ = ["LanguageConfig", "LanguageModel", "next_token_loss", "next_token_training"]


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(TrainingConfig):
    """What every language model's configuration holds beside its own shapes.

    Attributes:
        words: Number of distinct tokens.
        vocabulary: Rows of the embedding: ``words`` and padding to a whole tile.
        tokens: Tokens of a sequence.
        head_chunks: Parts of a sequence that the head takes one after another.
    """

    words: int
    vocabulary: int
    tokens: int
    head_chunks: int = 1


class LanguageModel(Protocol):
    """What a model gives to be trained on the next token."""

    def features(
        self, tokens: jax.Array, constrain: Constrain
    ) -> tuple[jax.Array, jax.Array | None]:
        """What the head reads at every place, and what the loss adds.

        Args:
            tokens: int32, ``[batch, tokens]``.
            constrain: Applied to the activations between layers.

        Returns:
            ``[batch, tokens, width]``, and a float32 scalar, or ``None``.
        """

    def head_matrix(self) -> jax.Array:
        """The head's float32 ``[vocabulary, width]``."""


def next_token_loss(
    features: jax.Array,
    matrix: jax.Array,
    targets: jax.Array,
    *,
    chunks: int = 1,
    constrain: Constrain,
) -> jax.Array:
    """Mean cross entropy of the next token, in float32.

    Args:
        features: ``[batch, tokens, width]``.
        matrix: ``[vocabulary, width]``.
        targets: int32, ``[batch, tokens]``.
        chunks: Parts of a sequence, which divide ``tokens``. One computes all
            logits at once and keeps them for the backward pass.
        constrain: Applied to the logits.

    Returns:
        A scalar.
    """

    def losses(features: jax.Array, targets: jax.Array) -> jax.Array:
        with jax.named_scope("head"):
            wide = features.astype(jnp.float32)
            logits = constrain(jnp.einsum("btc,vc->btv", wide, matrix))
        with jax.named_scope("loss"):
            each: jax.Array = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
            return each

    if chunks == 1:
        every = losses(features, targets)
        with jax.named_scope("loss"):
            return jnp.mean(every)

    @jax.checkpoint
    def add(total: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + jnp.sum(losses(*chunk)), None

    def split(array: jax.Array) -> jax.Array:
        # Along the sequence: the batch stays split over devices as it was.
        batch, tokens = array.shape[:2]
        parts = array.reshape(batch, chunks, tokens // chunks, *array.shape[2:])
        return jnp.moveaxis(parts, 1, 0)

    total, _ = jax.lax.scan(add, jnp.zeros((), jnp.float32), (split(features), split(targets)))
    return total / targets.size


def next_token_training(
    arch: str, preset: str, config: LanguageConfig, create: Callable[[nnx.Rngs], nnx.Module]
) -> Training:
    """A language model's training.

    Its step takes ``state``, and ``batch`` with ``tokens`` and ``targets``, the
    tokens one place on (int32, ``[batch, tokens]`` each). Nothing in it is
    random.

    Args:
        arch: Name of the architecture, and with ``_step`` of the step.
        preset: Of the configuration, for the training's name.
        config: The model's.
        create: Makes the model, a ``LanguageModel``.

    Raises:
        UsageError: When the chunks of the head do not divide a sequence.
    """
    if config.tokens % config.head_chunks:
        raise UsageError(
            f"{config.head_chunks} chunks do not divide a sequence of {config.tokens} tokens",
            place=f"--set head_chunks={config.head_chunks}",
            hint=f"Choose a divisor of {config.tokens}.",
        )
    learner = Learner(create, config)

    def make_step(constrain: Constrain) -> Any:
        def step(
            state: State, batch: Mapping[str, jax.Array]
        ) -> tuple[State, dict[str, jax.Array]]:
            def loss(model: LanguageModel) -> jax.Array:
                features, added = model.features(batch["tokens"], constrain)
                predicted = next_token_loss(
                    features,
                    model.head_matrix(),
                    batch["targets"],
                    chunks=config.head_chunks,
                    constrain=constrain,
                )
                return predicted if added is None else predicted + added

            return learner.update(state, loss)

        step.__name__ = f"{arch}_step"
        return step

    def example(key: jax.Array) -> tuple[Any, ...]:
        shape = (config.batch, config.tokens + 1)
        text = jax.random.randint(key, shape, 0, config.words)
        return ({"tokens": text[:, :-1], "targets": text[:, 1:]},)

    return Training(
        name=f"{arch} ({preset})",
        make_step=make_step,
        init=learner.init,
        example=example,
        roles=(Role.BATCH,),
        donates="undonated-state" not in config.bad,
    )
