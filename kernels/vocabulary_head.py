"""Implementations of the vocabulary head with cross entropy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from hloscope.kernels.case import Case

__all__ = ["implement"]

Arrays = Mapping[str, jax.Array]


def implement(
    case: Case,
    *,
    interpret: bool,  # noqa: ARG001  (there is no Pallas kernel among them)
) -> Callable[[Arrays], dict[str, jax.Array]]:
    """The case's function from operands to results."""
    form, _, wide = case.implementation.name.partition("_")

    def head(arrays: Arrays) -> dict[str, jax.Array]:
        hidden, table, labels = arrays["hidden"], arrays["table"], arrays["labels"]
        if wide:
            hidden, table = hidden.astype(jnp.float32), table.astype(jnp.float32)
        if form == "full":
            total = _sum_of_losses(hidden, table, labels)
        else:
            chunks = case.whole("chunks")
            pieces = (hidden.reshape(chunks, -1, case["d"]), labels.reshape(chunks, -1))

            @jax.checkpoint
            def add(total: jax.Array, piece: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
                return total + _sum_of_losses(piece[0], table, piece[1]), None

            total, _ = jax.lax.scan(add, jnp.zeros((), jnp.float32), pieces)
        return {"loss": total / case["s"]}

    return head


def _sum_of_losses(hidden: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
    logits = jnp.matmul(hidden, table, preferred_element_type=jnp.float32)
    chosen = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return jnp.sum(jax.nn.logsumexp(logits, axis=-1) - chosen)
