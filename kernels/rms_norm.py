"""Implementations of root mean square normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from hloscope.kernels.case import Case
from hloscope.kernels.oracles.rms_norm import EPSILON

__all__ = ["implement"]

Arrays = Mapping[str, jax.Array]


def implement(case: Case, *, interpret: bool) -> Callable[[Arrays], dict[str, jax.Array]]:
    """The case's function from operands to results; Triton's is interpreted where asked."""

    def normalize(arrays: Arrays) -> dict[str, jax.Array]:
        rows, scale = arrays["rows"], arrays["scale"]
        if case.implementation.name == "reference":
            wide = rows.astype(jnp.float32)
            mean = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
            output = (wide * jax.lax.rsqrt(mean + EPSILON) * scale).astype(rows.dtype)
        elif case.implementation.name == "narrow":
            mean = jnp.mean(jnp.square(rows), axis=-1, keepdims=True, dtype=jnp.float32)
            output = rows * jax.lax.rsqrt(mean + EPSILON).astype(rows.dtype) * scale
        else:
            # Here and not above: JAX may take the kernel away, not the other forms.
            from jax.experimental.pallas.ops.gpu import rms_norm as triton

            bias = jnp.zeros_like(scale)
            output = triton.rms_norm(rows[None], scale, bias, eps=EPSILON, interpret=interpret)[0]
        return {"output": output}

    return normalize
