"""Next-token prediction: what every language model and its step are, whatever mixes the tokens.

The logits are the largest array of such a step. With ``head_chunks`` the head and
the loss run over parts of each sequence, one after another, and the backward pass
computes a part's logits again, so that those of one part live at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.typing import DTypeLike

from hloscope.errors import UsageError
from hloscope.ir.signature import Role
from hloscope.models.blocks.layers import make_layers, run_layers
from hloscope.models.sharding import Layout, gather_width, pin
from hloscope.models.training import Learner, State, Training, TrainingConfig, configured

__all__ = [
    "LanguageConfig",
    "LanguageModel",
    "configured_language",
    "equal_layers",
    "next_token_loss",
    "next_token_training",
]


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(TrainingConfig):
    """What every language model's configuration holds beside what its layers need.

    Attributes:
        layers: Number of layers.
        width: Channels of a token.
        words: Number of distinct tokens.
        vocabulary: Rows of the embedding: ``words`` and padding to a whole tile.
        tokens: Tokens of a sequence.
        tied: Whether the embedding is the head, too.
        wide_head: Whether the head multiplies in float32, as many training codes
            do for the loss's sake, and not in ``dtype``.
        head_chunks: Parts of a sequence that the head takes one after another.
        remat: See ``hloscope.models.blocks.layers``.
        scan_layers: Whether one loop runs over stacked layers.
    """

    layers: int
    width: int
    words: int
    vocabulary: int
    tokens: int
    tied: bool = True
    wide_head: bool = False
    head_chunks: int = 1
    remat: str = "none"
    scan_layers: bool = False


Config = TypeVar("Config", bound=LanguageConfig)


def configured_language(
    config: Config, settings: Mapping[str, str], bad: Collection[str] = ()
) -> Config:
    """A preset with its options and antipatterns; see ``hloscope.models.training.configured``.

    With ``odd-length`` the vocabulary has as many rows as there are words, and where those
    are a multiple of eight one more, as for a token of padding that was added later.

    Args:
        config: A preset.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.

    Raises:
        UsageError: When two options do not go together.
    """
    chosen = configured(config, settings, bad)
    if "odd-length" in chosen.bad:
        chosen = replace(chosen, vocabulary=chosen.words + (chosen.words % 8 == 0))
    return chosen


class LanguageModel(nnx.Module):
    """Embedding, layers, and the embedding again or another matrix as the head.

    Args:
        config: Shapes.
        layers: From ``[batch, tokens, width]`` to the same shape; as
            ``hloscope.models.blocks.layers.make_layers`` gives them.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        config: LanguageConfig,
        layers: nnx.Module | Sequence[nnx.Module],
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.remat = config.remat
        self.embed = _token_embedding(config, rngs)
        self.layers = layers
        self.norm = nnx.RMSNorm(config.width, dtype=config.dtype, rngs=rngs)
        self.head = None if config.tied else _token_embedding(config, rngs)

    def features(self, tokens: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """What the head reads at every place, and what the loss adds.

        Args:
            tokens: int32, ``[batch, tokens]``.

        Returns:
            ``[batch, tokens, width]``, and a float32 scalar, or ``None``.
        """
        with jax.named_scope("embed"):
            words = self.embed.embedding[...].astype(self.embed.dtype)
            hidden = pin(jnp.take(gather_width(words), tokens, axis=0))
        hidden, added = self.mix(hidden)
        with jax.named_scope("head"):
            return self.norm(hidden), added

    def mix(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """Run the layers; the loss adds nothing."""
        hidden, _ = run_layers(self.layers, hidden, remat=self.remat)
        return hidden, None

    def head_matrix(self) -> jax.Array:
        """The head's float32 ``[vocabulary, width]``."""
        matrix: jax.Array = (self.head or self.embed).embedding[...]
        return matrix


def _token_embedding(config: LanguageConfig, rngs: nnx.Rngs) -> nnx.Embed:
    """A row of every token, ``[vocabulary, width]``."""
    return nnx.Embed(
        config.vocabulary,
        config.width,
        dtype=config.dtype,
        embedding_init=nnx.initializers.normal(0.02),
        rngs=rngs,
    )


def equal_layers(
    config: LanguageConfig, create: Callable[[nnx.Rngs], nnx.Module]
) -> Callable[[nnx.Rngs], LanguageModel]:
    """The constructor of a model whose layers are all alike.

    Args:
        config: The model's.
        create: Makes one layer, from ``[batch, tokens, width]`` to the same shape.
    """

    def model(rngs: nnx.Rngs) -> LanguageModel:
        layers = make_layers(create, config.layers, scan=config.scan_layers, rngs=rngs)
        return LanguageModel(config, layers, rngs=rngs)

    return model


def next_token_loss(
    features: jax.Array,
    matrix: jax.Array,
    targets: jax.Array,
    *,
    dtype: DTypeLike = jnp.float32,
    chunks: int = 1,
) -> jax.Array:
    """Mean cross entropy of the next token, in float32.

    Args:
        features: ``[batch, tokens, width]``.
        matrix: ``[vocabulary, width]``.
        dtype: Of the head's operands, and of the gradients that its products take.
        targets: int32, ``[batch, tokens]``.
        chunks: Parts of a sequence, which divide ``tokens``. One computes all
            logits at once and keeps them for the backward pass.

    Returns:
        A scalar.
    """

    def losses(features: jax.Array, targets: jax.Array) -> jax.Array:
        with jax.named_scope("head"):
            # Logits of the operands' type: from float32 ones the gradients'
            # products would be float32, whatever the operands are.
            logits = jnp.einsum("btc,vc->btv", features.astype(dtype), matrix.astype(dtype))
            logits = pin(logits.astype(jnp.float32), Layout.FEATURES)
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
        return pin(jnp.moveaxis(parts, 1, 0), Layout.CHUNKS)

    total, _ = jax.lax.scan(add, jnp.zeros((), jnp.float32), (split(features), split(targets)))
    return total / targets.size


def next_token_training(
    arch: str, preset: str, config: LanguageConfig, create: Callable[[nnx.Rngs], LanguageModel]
) -> Training:
    """A language model's training.

    Its step takes ``state``, and ``batch`` with ``tokens`` and ``targets``, the
    tokens one place on (int32, ``[batch, tokens]`` each). Nothing in it is
    random.

    Args:
        arch: Name of the architecture, and with ``_step`` of the step.
        preset: Of the configuration, for the training's name.
        config: The model's.
        create: Makes the model.

    Raises:
        UsageError: When the chunks of the head do not divide a sequence.
    """
    if config.tokens % config.head_chunks:
        raise UsageError(
            f"{config.head_chunks} chunks do not divide a sequence of {config.tokens} tokens",
            place=f"--set head_chunks={config.head_chunks}",
            hint=f"Choose a divisor of {config.tokens}.",
        )
    wide = config.wide_head or "float32-head" in config.bad
    head_dtype = jnp.float32 if wide else config.dtype
    learner = Learner(create, config)

    def step(state: State, batch: Mapping[str, jax.Array]) -> tuple[State, dict[str, jax.Array]]:
        def loss(model: LanguageModel) -> jax.Array:
            features, added = model.features(batch["tokens"])
            predicted = next_token_loss(
                features,
                model.head_matrix(),
                batch["targets"],
                dtype=head_dtype,
                chunks=config.head_chunks,
            )
            return predicted if added is None else predicted + added

        return learner.update(state, loss)

    step.__name__ = step.__qualname__ = f"{arch}_step"

    def example(key: jax.Array) -> tuple[Any, ...]:
        shape = (config.batch, config.tokens + 1)
        text = jax.random.randint(key, shape, 0, config.words)
        return ({"tokens": text[:, :-1], "targets": text[:, 1:]},)

    return Training(
        name=f"{arch} ({preset})",
        step=step,
        init=learner.init,
        example=example,
        roles=(Role.BATCH,),
        counts=config.counts,
        donates="undonated-state" not in config.bad,
    )
