"""Implementations of the SSD recurrence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from hloscope.kernels.case import Case
from hloscope.models.blocks.state_space_duality import state_space_duality

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
    chunk = max(case.whole("chunk"), 1)
    operands = (arrays[name] for name in ("query", "key", "value", "decay"))
    return state_space_duality(*operands, chunk=chunk)
