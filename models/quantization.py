"""Products of a model's layers in eight bits: quantized training, with qwix.

``fp8`` multiplies e4m3 by e4m3 in the forward pass; in the backward pass it multiplies
the gradient, rounded to e5m2, by the e4m3 operands that the forward pass kept
(Micikevicius et al., arXiv:2209.05433). ``int8`` rounds the forward pass only. Whatever
a product sums over has one scale, from its largest magnitude in this very step: each row
of activations, each column of a matrix. So the state holds nothing more, and parameters
stay float32.

Only linear layers within the stacks of layers are touched. Left as they are: what stands
before and behind these (embeddings, patches, the condition, the head), norms, attention's
own products and recurrences, modulations, whose operands hold one row a sample, routers
and experts, and the rates of a recurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

__all__ = ["quantize"]

Model = TypeVar("Model", bound=nnx.Module)

# Where models keep their layers, by the attribute's name.
_STACKS: frozenset[Hashable] = frozenset(
    {"layers", "blocks", "groups", "down", "middle", "up", "last"}
)
_LEFT_WIDE = frozenset({"modulation", "router", "asked", "rate"})


@dataclass(frozen=True, slots=True)
class _Types:
    """Of the operands in the forward pass and of gradients; ``None`` rounds none."""

    forward: DTypeLike
    gradient: DTypeLike | None


_TYPES = {
    "fp8": _Types(jnp.float8_e4m3fn, jnp.float8_e5m2),
    "int8": _Types(jnp.int8, None),
}


def quantize(model: Model, kind: str) -> Model:
    """Have the linear layers of a model's stacks multiply in eight bits.

    Args:
        model: Changed in place; its variables stay as they are.
        kind: ``fp8``, ``int8``, or ``none``, which changes nothing.

    Returns:
        The same model.

    Raises:
        ValueError: When it has no such layer.
    """
    if kind == "none":
        return model
    multiply = _multiplication(_TYPES[kind])
    found = [
        module
        for path, module in nnx.iter_graph(model)
        if isinstance(module, nnx.Linear)
        and not _STACKS.isdisjoint(path)
        and path[-1] not in _LEFT_WIDE
    ]
    if not found:
        raise ValueError(f"{type(model).__name__} has no layer to quantize")
    for module in found:
        module.dot_general = multiply
    return model


def _multiplication(types: _Types) -> Callable[..., jax.Array]:
    """What a linear layer calls for its product: ``[.., in]`` by ``[in, out]``."""

    @jax.custom_vjp
    def product(rows: jax.Array, matrix: jax.Array) -> jax.Array:
        return forward(rows, matrix)[0]

    forward = partial(_forward, types)
    product.defvjp(forward, partial(_backward, types))

    def multiply(rows: jax.Array, matrix: jax.Array, dimension_numbers: Any, **_: Any) -> jax.Array:
        if dimension_numbers != _last_by_first(rows):
            raise ValueError(f"not a linear layer's product: {dimension_numbers}")
        result: jax.Array = product(rows, matrix)
        return result

    return multiply


def _forward(types: _Types, rows: jax.Array, matrix: jax.Array) -> tuple[jax.Array, Any]:
    import qwix

    narrow_rows = qwix.quantize(rows, types.forward, channelwise_axes=_leading(rows))
    narrow_matrix = qwix.quantize(matrix, types.forward, channelwise_axes=(1,))
    result = qwix.dot_general(narrow_rows, narrow_matrix, _last_by_first(rows))
    return result, (rows, matrix) if types.gradient is None else (narrow_rows, narrow_matrix)


def _backward(types: _Types, kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, matrix = kept
    leading = _leading(gradient)
    by_columns = (((gradient.ndim - 1,), (1,)), ((), ()))
    over_rows = ((leading, leading), ((), ()))
    if types.gradient is None:
        return (
            jax.lax.dot_general(gradient, matrix, by_columns),
            jax.lax.dot_general(rows, gradient, over_rows),
        )
    import qwix

    # The scales of what was kept lie along what is summed over here: the gradient takes
    # them up before it is rounded.
    by_column = qwix.quantize(gradient * matrix.scale[0], types.gradient, channelwise_axes=leading)
    by_row = qwix.quantize(
        gradient * rows.scale, types.gradient, channelwise_axes=(gradient.ndim - 1,)
    )
    return (
        qwix.dot_general(by_column, matrix.qvalue, by_columns),
        qwix.dot_general(rows.qvalue, by_row, over_rows),
    )


def _leading(array: jax.Array) -> tuple[int, ...]:
    return tuple(range(array.ndim - 1))


def _last_by_first(rows: jax.Array) -> tuple[Any, Any]:
    return ((rows.ndim - 1,), (0,)), ((), ())
