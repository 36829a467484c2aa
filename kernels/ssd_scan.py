"""Implementations of the SSD recurrence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from hloscope.kernels.case import Case
from hloscope.models.blocks.state_space_duality import state_space_duality

__all__ = ["implement"]

Arrays = Mapping[str, jax.Array]


def implement(case: Case, *, interpret: bool) -> Callable[[Arrays], dict[str, jax.Array]]:
    """The case's function from operands to results; states are float32.

    Args:
        case: What to compute.
        interpret: Whether Triton's kernel runs interpreted; Mosaic's is from outside.
    """
    if case.implementation.name in ("pallas_gpu", "pallas_tpu"):
        return lambda arrays: {"output": _pallas(case, arrays, interpret=interpret)}
    way = {"sequential": _sequential, "chunked": _chunked}[case.implementation.name]
    return lambda arrays: {"output": way(case, arrays)}


def _pallas(case: Case, arrays: Arrays, *, interpret: bool) -> jax.Array:
    operands = (arrays[name] for name in ("query", "key", "value", "decay"))
    # Here and not above: what Pallas changes should cost no other implementation.
    if case.implementation.name == "pallas_tpu":
        from hloscope.kernels.ssd_mosaic import mosaic_ssd

        return mosaic_ssd(*operands, chunk=case.whole("chunk"))
    from hloscope.kernels.ssd_triton import triton_ssd

    return triton_ssd(*operands, chunk=case.whole("chunk"), interpret=interpret)


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
    operands = (arrays[name] for name in ("query", "key", "value", "decay"))
    return state_space_duality(*operands, chunk=case.whole("chunk"))
