"""Kernels of tokamax, where it is installed; what it needs to be compiled without its chip.

tokamax asks the device that is attached what it takes. What does so through JAX's
default device can be told another; its gated linear unit, normalization and
cross entropy ask past that, and are not among hloscope's implementations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from hloscope.kernels.case import Case

__all__ = ["attend", "compiled_for", "multiply_groups"]


def attend(
    case: Case, query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array | None
) -> jax.Array:
    """``tokamax.dot_product_attention``; the mask leaves causality and windows out."""
    import tokamax

    window, causal = case.whole("window"), bool(case.whole("causal"))
    attended: jax.Array = tokamax.dot_product_attention(
        query,
        key,
        value,
        mask=mask,
        is_causal=causal,
        local_window_size=(window - 1, 0 if causal else window - 1) if window else None,
        logits_soft_cap=case.settings["softcap"] or None,
        precision=_precision(case),
        implementation=_way(case),
    )
    return attended


def multiply_groups(
    case: Case, rows: jax.Array, matrices: jax.Array, sizes: jax.Array
) -> jax.Array:
    """``tokamax.ragged_dot``."""
    import tokamax

    product: jax.Array = tokamax.ragged_dot(
        rows, matrices, sizes, precision=_precision(case), implementation=_way(case)
    )
    return product


def compiled_for(device: jax.Device, program: Callable[..., Any]) -> Callable[..., Any]:
    """The program as tokamax traces it for a device that need not be attached."""

    @functools.wraps(program)
    def told(*arguments: Any) -> Any:
        import tokamax

        with tokamax.config.cross_compile(True), jax.default_device(device):
            return program(*arguments)

    return told


def _way(case: Case) -> Any:
    """What tokamax itself calls an implementation."""
    name = case.implementation.name.removeprefix("tokamax_")
    return "xla_chunked" if name == "chunked" else name


def _precision(case: Case) -> jax.lax.Precision | None:
    """What JAX's default would be: tokamax does not read it."""
    return jax.lax.Precision.HIGHEST if case.dtype == "float32" else None
