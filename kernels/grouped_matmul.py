"""Implementations of the grouped product."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from hloscope.kernels.case import Case

__all__ = ["implement"]

Arrays = Mapping[str, jax.Array]


def implement(
    case: Case,
    *,
    interpret: bool,  # noqa: ARG001  (a Mosaic kernel is interpreted from outside)
) -> Callable[[Arrays], dict[str, jax.Array]]:
    """The case's function from operands to results."""
    ways = {"dense": _dense, "capacity": _capacity, "ragged": _ragged, "megablox": _megablox}
    way = ways.get(case.implementation.name, _tokamax)
    return lambda arrays: {"output": way(case, arrays)}


def _group_of_row(case: Case, sizes: jax.Array) -> jax.Array:
    """The group of each row, ``[s]``."""
    return jnp.searchsorted(jnp.cumsum(sizes), jnp.arange(case["s"]), side="right")


def _dense(case: Case, arrays: Arrays) -> jax.Array:
    rows, matrices = arrays["rows"], arrays["matrices"]
    mine = jax.nn.one_hot(_group_of_row(case, arrays["sizes"]), case["g"], dtype=rows.dtype)
    every = jnp.einsum("sd,gdf->gsf", rows, matrices)
    return jnp.einsum("gsf,sg->sf", every, mine)


def _capacity(case: Case, arrays: Arrays) -> jax.Array:
    rows, sizes = arrays["rows"], arrays["sizes"]
    room = max(1, math.ceil(case.settings["capacity"] * case["s"] / case["g"]))
    group = _group_of_row(case, sizes)
    place = jnp.arange(case["s"]) - (jnp.cumsum(sizes) - sizes)[group]
    buffers = jnp.zeros((case["g"], room, case["d"]), rows.dtype)
    buffers = buffers.at[group, place].set(rows, mode="drop")
    products = jnp.einsum("gcd,gdf->gcf", buffers, arrays["matrices"])
    return products.at[group, place].get(mode="fill", fill_value=0)


def _ragged(case: Case, arrays: Arrays) -> jax.Array:  # noqa: ARG001
    return jax.lax.ragged_dot(arrays["rows"], arrays["matrices"], arrays["sizes"])


def _megablox(case: Case, arrays: Arrays) -> jax.Array:  # noqa: ARG001
    # Here and not above: JAX may take the kernel away, not the other forms.
    from jax.experimental.pallas.ops.tpu import megablox

    rows = arrays["rows"]
    product: jax.Array = megablox.gmm(rows, arrays["matrices"], arrays["sizes"], rows.dtype)
    return product


def _tokamax(case: Case, arrays: Arrays) -> jax.Array:
    from hloscope.kernels.tokamax_kernels import multiply_groups

    return multiply_groups(case, arrays["rows"], arrays["matrices"], arrays["sizes"])
