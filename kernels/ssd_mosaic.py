"""The SSD recurrence as a Pallas kernel for TPUs (Mosaic), with its gradients.

The grid is gone through in order, heads within chunks: the states of all heads stay in
VMEM from one chunk to the next, and scores are never written to memory. Each head makes
the scores of its chunk again, which costs products and saves room. The gradients' kernel
goes from the last chunk to the first, with the gradients of the states in VMEM and the
states before each chunk from memory, where the forward pass writes them only if
gradients are asked for; those of keys and queries, which heads share, add up in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from hloscope.kernels.ssd_chunk import (
    BACKWARD_PRODUCTS,
    FORWARD_PRODUCTS,
    SsdSizes,
    chunk_backward,
    chunk_forward,
    decay_totals,
)

__all__ = ["mosaic_ssd"]

Ref = Any
"""What Pallas gives a kernel in place of an array."""

Residuals = tuple[jax.Array, ...]


def mosaic_ssd(
    query: jax.Array, key: jax.Array, value: jax.Array, decay: jax.Array, *, chunk: int
) -> jax.Array:
    """The recurrence on a TPU: chunks one after the other, the states of all heads in VMEM.

    Args:
        query: ``[batch, tokens, state]``, for all heads.
        key: As ``query``.
        value: ``[batch, tokens, heads, width]``.
        decay: Logarithm of what is left of the state: float32, ``[batch, tokens, heads]``.
        chunk: Tokens of a chunk, a multiple of 16 that divides the tokens.

    Returns:
        As ``value``.
    """
    # Blocks are cut from the last two axes in tiles, so heads stand before tokens.
    output = _mosaic(query, key, value.transpose(0, 2, 1, 3), decay_totals(decay, chunk))
    return output.transpose(0, 2, 1, 3)


@jax.custom_vjp
def _mosaic(query: jax.Array, key: jax.Array, value: jax.Array, total: jax.Array) -> jax.Array:
    return _mosaic_forward(query, key, value, total, keep=False)[0]


def _mosaic_kept(*operands: jax.Array) -> tuple[jax.Array, Residuals]:
    output, states = _mosaic_forward(*operands, keep=True)
    return output, (*operands, states)


def _mosaic_forward(
    query: jax.Array, key: jax.Array, value: jax.Array, total: jax.Array, *, keep: bool
) -> Sequence[jax.Array]:
    sizes = SsdSizes.of(query, value, total)

    def kernel(query: Ref, key: Ref, value: Ref, total: Ref, *refs: Ref) -> None:
        output, *kept, states = refs
        head = pl.program_id(2)

        @pl.when(pl.program_id(1) == 0)
        def _start() -> None:
            states[head] = jnp.zeros(states.shape[1:], states.dtype)

        before = states[head]
        if kept:
            kept[0][...] = before
        made, states[head] = chunk_forward(query[...], key[...], value[...], total[...], before)
        output[...] = made.astype(output.dtype)

    shared, own, sums, state = _mosaic_blocks(sizes, backward=False)
    results = [jax.ShapeDtypeStruct(value.shape, value.dtype), *([sizes.states] if keep else [])]
    found: Sequence[jax.Array] = pl.pallas_call(
        kernel,
        results,
        grid=(sizes.batch, sizes.chunks, sizes.heads),
        in_specs=[shared, shared, own, sums],
        out_specs=[own, *([state] if keep else [])],
        scratch_shapes=[pltpu.VMEM((sizes.heads, sizes.state, sizes.width), jnp.float32)],
        compiler_params=_IN_ORDER,
        cost_estimate=sizes.cost(FORWARD_PRODUCTS, [query, key, value, total, *results]),
        name="ssd_forward",
    )(query, key, value, total)
    return found


def _mosaic_backward(residuals: Residuals, of_output: jax.Array) -> Residuals:
    query, key, value, total, _ = residuals
    sizes = SsdSizes.of(query, value, total)

    def kernel(
        query: Ref,
        key: Ref,
        value: Ref,
        total: Ref,
        state: Ref,
        of_output: Ref,
        of_query: Ref,
        of_key: Ref,
        of_value: Ref,
        of_total: Ref,
        of_states: Ref,
    ) -> None:
        head = pl.program_id(2)

        @pl.when(pl.program_id(1) == 0)
        def _start() -> None:
            of_states[head] = jnp.zeros(of_states.shape[1:], of_states.dtype)

        @pl.when(head == 0)
        def _first() -> None:
            of_query[...] = jnp.zeros_like(of_query)
            of_key[...] = jnp.zeros_like(of_key)

        found = chunk_backward(
            query[...],
            key[...],
            value[...],
            total[...],
            state[...],
            of_output[...],
            of_states[head],
        )
        of_query[...] += found[0]
        of_key[...] += found[1]
        of_value[...] = found[2].astype(of_value.dtype)
        of_total[...] = found[3]
        of_states[head] = found[4]

    shared, own, sums, state = _mosaic_blocks(sizes, backward=True)
    results = [
        jax.ShapeDtypeStruct(query.shape, jnp.float32),
        jax.ShapeDtypeStruct(key.shape, jnp.float32),
        jax.ShapeDtypeStruct(value.shape, value.dtype),
        jax.ShapeDtypeStruct(total.shape, jnp.float32),
    ]
    of_query, of_key, of_value, of_total = pl.pallas_call(
        kernel,
        results,
        grid=(sizes.batch, sizes.chunks, sizes.heads),
        in_specs=[shared, shared, own, sums, state, own],
        out_specs=[shared, shared, own, sums],
        scratch_shapes=[pltpu.VMEM((sizes.heads, sizes.state, sizes.width), jnp.float32)],
        compiler_params=_IN_ORDER,
        cost_estimate=sizes.cost(BACKWARD_PRODUCTS, [*residuals, of_output, *results]),
        name="ssd_backward",
    )(*residuals, of_output)
    return of_query.astype(query.dtype), of_key.astype(key.dtype), of_value, of_total


_IN_ORDER = pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary", "arbitrary"))


def _mosaic_blocks(sizes: SsdSizes, *, backward: bool) -> tuple[pl.BlockSpec, ...]:
    """Blocks of keys and queries, of values, of sums of decays, and of states."""

    def at(chunk: Any) -> Any:
        return sizes.chunks - 1 - chunk if backward else chunk

    return (
        pl.BlockSpec((None, sizes.chunk, sizes.state), lambda b, c, _h: (b, at(c), 0)),
        pl.BlockSpec((None, None, sizes.chunk, sizes.width), lambda b, c, h: (b, h, at(c), 0)),
        pl.BlockSpec((None, None, None, 1, sizes.chunk), lambda b, c, h: (b, h, at(c), 0, 0)),
        pl.BlockSpec(
            (None, None, None, sizes.state, sizes.width), lambda b, c, h: (b, h, at(c), 0, 0)
        ),
    )


_mosaic.defvjp(_mosaic_kept, _mosaic_backward)
