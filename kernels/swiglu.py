"""Implementations of SwiGLU's gated half."""

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
    """The case's function from operands to results; the activation is computed in float32."""

    def gated(arrays: Arrays) -> dict[str, jax.Array]:
        rows, weights = arrays["rows"], arrays["weights"]
        if case.implementation.name == "two":
            gate = _product(rows, weights[:, : case["f"]])
            up = _product(rows, weights[:, case["f"] :])
        else:
            gate, up = jnp.split(_product(rows, weights), 2, axis=-1)
        return {"output": (jax.nn.silu(gate) * up).astype(rows.dtype)}

    return gated


def _product(rows: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.matmul(rows, weights, preferred_element_type=jnp.float32)
