"""The SSD recurrence as a Pallas kernel for GPUs (Triton), with its gradients.

Programs run at the same time, so each goes through all chunks of its head, or of some
columns of a wider one, and carries their state in a loop; scores are never written to
memory. Each program makes the scores again, which costs products and saves room. The
gradients' kernel goes from the last chunk to the first, with the states before each
chunk from memory, where the forward pass writes them only if gradients are asked for;
the gradients of what programs share are added up afterwards.

JAX keeps no cost estimate of a Triton kernel, so none is given.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from hloscope.kernels.ssd_chunk import SsdSizes, chunk_backward, chunk_forward, decay_totals

__all__ = ["triton_ssd"]

Ref = Any
"""What Pallas gives a kernel in place of an array."""

Residuals = tuple[jax.Array, ...]

_COLUMNS = {2: 64, 4: 32}
"""A head's columns that one Triton program takes, by the bytes of a value: what the
gradients of chunks of 128 tokens then want of an H100's shared memory is there.
"""


def triton_ssd(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    decay: jax.Array,
    *,
    chunk: int,
    interpret: bool,
) -> jax.Array:
    """The recurrence on a GPU: a program for each head, or for some columns of a wider one.

    Args:
        query: ``[batch, tokens, state]``; the state's width is a power of two from 16 on.
        key: As ``query``.
        value: ``[batch, tokens, heads, width]``; ``width`` is such a power too.
        decay: Logarithm of what is left of the state: float32, ``[batch, tokens, heads]``.
        chunk: Tokens of a chunk, such a power that divides the tokens.
        interpret: Whether it runs in Pallas' interpreter.

    Returns:
        As ``value``.
    """
    return _triton(interpret, query, key, value, decay_totals(decay, chunk))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _triton(
    interpret: bool, query: jax.Array, key: jax.Array, value: jax.Array, total: jax.Array
) -> jax.Array:
    return _triton_forward(interpret, query, key, value, total, keep=False)[0]


def _triton_kept(interpret: bool, *operands: jax.Array) -> tuple[jax.Array, Residuals]:
    output, states = _triton_forward(interpret, *operands, keep=True)
    return output, (*operands, states)


def _triton_forward(
    interpret: bool,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    total: jax.Array,
    *,
    keep: bool,
) -> Sequence[jax.Array]:
    sizes = SsdSizes.of(query, value, total)
    columns = min(sizes.width, _COLUMNS[value.dtype.itemsize])

    def kernel(query: Ref, key: Ref, value: Ref, total: Ref, output: Ref, *kept: Ref) -> None:
        def through(number: Any, state: jax.Array) -> jax.Array:
            tokens = pl.ds(number * sizes.chunk, sizes.chunk)
            if kept:
                kept[0][number] = state
            made, after = chunk_forward(
                query[tokens, :],
                key[tokens, :],
                value[tokens, :],
                total[number],
                state,
                precision=_precision(value.dtype, interpret=interpret),
            )
            output[tokens, :] = made.astype(output.dtype)
            return after

        start = jnp.zeros((sizes.state, columns), jnp.float32)
        jax.lax.fori_loop(0, sizes.chunks, through, start)

    shared, own, sums, state = _triton_blocks(sizes, columns)
    results = [jax.ShapeDtypeStruct(value.shape, value.dtype), *([sizes.states] if keep else [])]
    found: Sequence[jax.Array] = pl.pallas_call(
        kernel,
        results,
        grid=(sizes.batch, sizes.heads, sizes.width // columns),
        in_specs=[shared, shared, own, sums],
        out_specs=[own, *([state] if keep else [])],
        compiler_params=_triton_params(sizes),
        interpret=interpret,
        name="ssd_forward",
    )(query, key, value, total)
    return found


def _triton_backward(interpret: bool, residuals: Residuals, of_output: jax.Array) -> Residuals:
    query, key, value, total, _ = residuals
    sizes = SsdSizes.of(query, value, total)
    columns = min(sizes.width, _COLUMNS[value.dtype.itemsize])
    parts = sizes.width // columns

    def kernel(
        query: Ref,
        key: Ref,
        value: Ref,
        total: Ref,
        states: Ref,
        of_output: Ref,
        of_query: Ref,
        of_key: Ref,
        of_value: Ref,
        of_total: Ref,
    ) -> None:
        def through(done: Any, of_state: jax.Array) -> jax.Array:
            number = sizes.chunks - 1 - done
            tokens = pl.ds(number * sizes.chunk, sizes.chunk)
            found = chunk_backward(
                query[tokens, :],
                key[tokens, :],
                value[tokens, :],
                total[number],
                states[number],
                of_output[tokens, :],
                of_state,
                precision=_precision(value.dtype, interpret=interpret),
            )
            of_query[tokens, :], of_key[tokens, :] = found[0], found[1]
            of_value[tokens, :] = found[2].astype(of_value.dtype)
            of_total[number] = found[3]
            return found[4]

        start = jnp.zeros((sizes.state, columns), jnp.float32)
        jax.lax.fori_loop(0, sizes.chunks, through, start)

    shared, own, sums, state = _triton_blocks(sizes, columns)
    part = pl.BlockSpec((None, None, None, *query.shape[1:]), lambda b, h, p: (b, h, p, 0, 0))
    part_of_sums = pl.BlockSpec(
        (None, None, None, *total.shape[2:]), lambda b, h, p: (b, h, p, 0, 0, 0)
    )
    shared_parts = (sizes.batch, sizes.heads, parts, *query.shape[1:])
    of_query, of_key, of_value, of_total = pl.pallas_call(
        kernel,
        [
            jax.ShapeDtypeStruct(shared_parts, jnp.float32),
            jax.ShapeDtypeStruct(shared_parts, jnp.float32),
            jax.ShapeDtypeStruct(value.shape, value.dtype),
            jax.ShapeDtypeStruct((*total.shape[:2], parts, *total.shape[2:]), jnp.float32),
        ],
        grid=(sizes.batch, sizes.heads, parts),
        in_specs=[shared, shared, own, sums, state, own],
        out_specs=[part, part, own, part_of_sums],
        compiler_params=_triton_params(sizes),
        interpret=interpret,
        name="ssd_backward",
    )(*residuals, of_output)
    return (
        of_query.sum((1, 2)).astype(query.dtype),
        of_key.sum((1, 2)).astype(key.dtype),
        of_value,
        of_total.sum(2),
    )


def _precision(dtype: Any, *, interpret: bool) -> jax.lax.DotAlgorithmPreset | None:
    """Three products of TF32 for one of float32, which has no tensor cores to run on.

    They leave out what is about 2^-22 of each term, and Triton takes minutes less to compile them.
    """
    if interpret or dtype != jnp.float32:
        return None
    return jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3


def _triton_params(sizes: SsdSizes) -> pltriton.CompilerParams:
    return pltriton.CompilerParams(num_warps=8 if sizes.chunk > 64 else 4, num_stages=1)


def _triton_blocks(sizes: SsdSizes, columns: int) -> tuple[pl.BlockSpec, ...]:
    """What a program sees of keys and queries, values, sums of decays, and states."""
    tokens = sizes.chunks * sizes.chunk
    return (
        pl.BlockSpec((None, tokens, sizes.state), lambda b, _h, _p: (b, 0, 0)),
        pl.BlockSpec((None, tokens, None, columns), lambda b, h, p: (b, 0, h, p)),
        pl.BlockSpec((None, None, sizes.chunks, 1, sizes.chunk), lambda b, h, _p: (b, h, 0, 0, 0)),
        pl.BlockSpec(
            (None, None, sizes.chunks, sizes.state, columns), lambda b, h, p: (b, h, 0, 0, p)
        ),
    )


_triton.defvjp(_triton_kept, _triton_backward)
