"""Implementations of the SSD recurrence."""

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
    """The case's function from operands to results; states are float32."""
    way = {"sequential": _sequential, "chunked": _chunked}[case.implementation.name]
    return lambda arrays: {"output": way(case, arrays)}


def _sequential(case: Case, arrays: Arrays) -> jax.Array:
    def token(state: jax.Array, inputs: Arrays) -> tuple[jax.Array, jax.Array]:
        state *= jnp.exp(inputs["decay"])[..., None, None]
        state += jnp.einsum(
            "bn,bhd->bhnd",
            inputs["key"],
            inputs["value"],
            preferred_element_type=jnp.float32,
        )
        return state, jnp.einsum("bn,bhnd->bhd", inputs["query"].astype(jnp.float32), state)

    start = jnp.zeros((case["b"], case["h"], case["n"], case["d"]), jnp.float32)
    along = {name: jnp.moveaxis(array, 1, 0) for name, array in arrays.items()}
    _, outputs = jax.lax.scan(token, start, along)
    return jnp.moveaxis(outputs, 0, 1).astype(arrays["value"].dtype)


def _chunked(case: Case, arrays: Arrays) -> jax.Array:
    """Dao and Gu's block decomposition (arXiv:2405.21060, section 6).

    With ``l`` the running sum of log decays in a chunk, token i takes
    ``exp(l_i - l_j) (q_i k_j) v_j`` from the tokens j of its chunk and
    ``exp(l_i) q_i state`` from the chunks before.
    """
    size = max(case.whole("chunk"), 1)
    pieces = {
        name: array.reshape(case["b"], -1, size, *array.shape[2:]) for name, array in arrays.items()
    }
    value, key, query = pieces["value"], pieces["key"], pieces["query"]
    decay = jnp.cumsum(pieces["decay"], axis=2)
    gaps = decay[:, :, :, None] - decay[:, :, None]
    earlier = jnp.tril(jnp.ones((size, size), bool))[..., None]
    # Masked before the exponential: above the diagonal it may overflow, which
    # would make the gradient of what is thrown away no number.
    shrink = jnp.exp(jnp.where(earlier, gaps, -jnp.inf))
    scores = jnp.einsum("bcin,bcjn->bcij", query, key, preferred_element_type=jnp.float32)
    weights = (scores[..., None] * shrink).astype(value.dtype)
    inside = jnp.einsum("bcijh,bcjhd->bcihd", weights, value, preferred_element_type=jnp.float32)
    to_end = jnp.exp(decay[:, :, -1:] - decay)
    aged = (value * to_end[..., None]).astype(value.dtype)
    added = jnp.einsum("bcjn,bcjhd->bchnd", key, aged, preferred_element_type=jnp.float32)

    def chunk(state: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        own, shrunk = inputs
        return state * shrunk[..., None, None] + own, state

    start = jnp.zeros(added.shape[:1] + added.shape[2:], jnp.float32)
    through = (jnp.moveaxis(added, 1, 0), jnp.moveaxis(jnp.exp(decay[:, :, -1]), 1, 0))
    _, before = jax.lax.scan(chunk, start, through)
    carried = jnp.einsum(
        "bcin,cbhnd->bcihd", query, before.astype(value.dtype), preferred_element_type=jnp.float32
    )
    output = inside + carried * jnp.exp(decay)[..., None]
    return output.reshape(arrays["value"].shape).astype(value.dtype)
