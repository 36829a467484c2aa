"""JAX-AITER's calls on AMD: attention and matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloscope.ir import Instruction, Shape
from hloscope.passes.flops.attention import Attention, Mask
from hloscope.passes.flops.call_config import integer
from hloscope.passes.flops.counts import Count, Kind, result_of, size_of, unknown

__all__ = ["count_aiter_attention", "count_aiter_gemm"]


def count_aiter_attention(instruction: Instruction) -> Count:
    """``MhaFwdUnifiedJA`` and ``MhaBwdUnifiedJA``.

    Queries, keys and values are ``[B, S, H, D]``, or, where sequences of
    several lengths are packed, ``[tokens, H, D]``: then each query meets at
    most ``max_seqlen_k`` keys. Causal masks are aligned at the bottom right.

    Raises:
        IndexError: It has too few operands, or of too low a rank.
        ValueError: An attribute is no integer.
    """
    config = instruction.backend_config
    backward = "Bwd" in (instruction.custom_call_target or "")
    first = 1 if backward else 0
    q, k, v = (o.shape for o in instruction.operands[first : first + 3])
    packed = q.rank == 3
    if packed and "max_seqlen_k" not in config:
        return unknown(Kind.ATTENTION, "its sequences are packed and it has no max_seqlen_k")
    keys = integer(config["max_seqlen_k"], "max_seqlen_k") if packed else k.dimensions[1]
    sizes = Attention(
        1 if packed else q.dimensions[0],
        q.dimensions[-2],
        q.dimensions[0] if packed else q.dimensions[1],
        keys,
        q.dimensions[-1],
        v.dimensions[-1],
    )
    # Packed, a query's place in its own sequence is not known, and so no mask either.
    mask = Mask(padded=True) if packed else _mask(config)
    return sizes.count(mask, (q.dtype, k.dtype), backward=backward)


def _mask(config: Mapping[str, Any]) -> Mask:
    left = integer(config.get("window_size_left", -1), "window_size_left")
    right = integer(config.get("window_size_right", -1), "window_size_right")
    return Mask(
        left=left if left >= 0 else None,
        right=0 if config.get("is_causal") is True else right if right >= 0 else None,
        at_the_end=True,
    )


def count_aiter_gemm(instruction: Instruction) -> Count:
    """A product of ``A [M, K]`` and ``B [N, K]``: ``2 M N K``.

    Four-bit elements come two in a byte, which halves the last dimension.

    Raises:
        IndexError: It has fewer than two operands.
    """
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    result = result_of(instruction)
    return Count(
        Kind.MATMUL,
        2 * result.num_elements * size_of(lhs, (-1,)) * _elements_a_byte(instruction, lhs),
        dtypes=(lhs.dtype, rhs.dtype),
        accumulation=result.dtype,
    )


def _elements_a_byte(instruction: Instruction, lhs: Shape) -> int:
    four_bit = "Fp4" in (instruction.custom_call_target or "")
    return 2 if four_bit and not lhs.dtype.startswith("f4") else 1
