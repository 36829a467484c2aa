"""Implementations of the masked short convolution."""

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
    """The case's function from operands to results; sums are float32."""
    way = {"scan": _scan, "compacted": _compacted}[case.implementation.name]
    return lambda arrays: {"output": way(case, arrays)}


def _scan(case: Case, arrays: Arrays) -> jax.Array:
    rows, taps, mask = arrays["rows"], arrays["taps"].astype(jnp.float32), arrays["mask"]

    def token(last: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        now, there = inputs
        window = jnp.concatenate((last, now[:, None]), axis=1)
        output = jnp.sum(window * taps, axis=1)
        there = there[:, None]
        kept = jnp.where(there[..., None], window[:, 1:], last)
        return kept, jnp.where(there, output, 0).astype(rows.dtype)

    start = jnp.zeros((case["b"], case["t"] - 1, case["d"]), rows.dtype)
    along = (rows.swapaxes(0, 1), mask.swapaxes(0, 1))
    _, outputs = jax.lax.scan(token, start, along)
    return outputs.swapaxes(0, 1)


def _compacted(case: Case, arrays: Arrays) -> jax.Array:
    rows, taps, mask = arrays["rows"], arrays["taps"], arrays["mask"]
    # Unmasked tokens first, in their order; the masked ones behind them harm nobody.
    order = jnp.argsort(~mask, axis=1, stable=True)
    gathered = jnp.take_along_axis(rows, order[..., None], axis=1)
    padded = jnp.pad(gathered, ((0, 0), (case["t"] - 1, 0), (0, 0)))
    output = sum(
        padded[:, tap : tap + case["s"]].astype(jnp.float32) * taps[tap].astype(jnp.float32)
        for tap in range(case["t"])
    )
    place = jnp.argsort(order, axis=1)
    returned = jnp.take_along_axis(jnp.asarray(output), place[..., None], axis=1)
    return jnp.where(mask[..., None], returned, 0).astype(rows.dtype)
