"""Fused attention that XLA:GPU hands to cuDNN."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from hloscope.ir import Instruction
from hloscope.passes.flops.attention import Attention, Mask
from hloscope.passes.flops.call_config import integer, integers, nested, section
from hloscope.passes.flops.counts import Count, Kind, result_of, size_of, unknown

__all__ = ["count_cudnn_attention"]

_GRADIENT_OPERAND = 4  # q, k, v, then statistics (fp8: the output), then the output's gradient


def count_cudnn_attention(instruction: Instruction) -> Count:
    """Count a forward or backward call, with or without bias, dropout, paging or fp8.

    Builds of 2023 kept the probabilities where later ones keep each row's
    statistics: their backward pass does not repeat the scores.

    Raises:
        IndexError: Dimensions do not fit the operands.
        ValueError: The configuration is no such thing, or does not fit them.
    """
    config = section(instruction.backend_config, "cudnn_fmha_backend_config")
    scores = integers(nested(config, "intermediate_tensor_shape"), "dimensions")
    if len(scores) != 4 or not all(size > 0 for size in scores):
        return unknown(Kind.ATTENTION, "its configuration gives no shape of the scores")
    batch, heads, queries, keys = scores
    if config.get("is_paged_attention"):
        keys *= _pages(instruction)
    backward = "Backward" in (instruction.custom_call_target or "")
    wide, deep = _head_sizes(instruction, config, batch * heads * queries, backward=backward)
    q, k = instruction.operands[0].shape, instruction.operands[1].shape
    kept = backward and _keeps_probabilities(instruction, scores)
    return Attention(batch, heads, queries, keys, wide, deep).count(
        _mask(config), (q.dtype, k.dtype), backward=backward, repeats_scores=not kept
    )


def _mask(config: Mapping[str, Any]) -> Mask:
    """The causal mask is aligned at the top left.

    A sliding window of length ``w`` lets a query see the last ``w`` keys, its
    own among them; it comes with a causal mask, and 0 means none.
    """
    kind = str(config.get("mask_type", "NO_MASK"))
    window = integer(config.get("sliding_window_length", 0), "sliding_window_length")
    packed = integer(config.get("max_seg_per_batch", 1), "max_seg_per_batch") > 1
    causal = "CAUSAL" in kind or window > 0 or config.get("is_causal_mask") is True
    return Mask(
        left=window - 1 if window > 0 else None,
        right=0 if causal else None,
        padded=packed or "PADDING" in kind,
    )


def _keeps_probabilities(instruction: Instruction, scores: tuple[int, ...]) -> bool:
    kept = instruction.operands[3].shape
    return kept.rank == 4 and kept.num_elements == prod(scores)


def _head_sizes(
    instruction: Instruction, config: Mapping[str, Any], rows: int, *, backward: bool
) -> tuple[int, int]:
    """Sizes of a query (or key) and of a value.

    Args:
        instruction: The call.
        config: Its attention configuration.
        rows: Batch times heads times queries, one row of the output each.
        backward: Whether the output's gradient is an operand.
    """
    query = instruction.operands[0].shape
    dims = nested(config, "bmm1_dot_dimension_numbers")
    if dims and not backward:
        wide = size_of(query, integers(dims, "lhs_contracting_dimensions"))
    else:
        wide = query.num_elements // rows
    gradient = instruction.operands[_GRADIENT_OPERAND] if backward else None
    output = gradient.shape if gradient is not None else result_of(instruction)
    if output.num_elements % rows or not output.num_elements:
        raise ValueError(f"its output {output} does not fit {rows} rows of scores")
    return wide, output.num_elements // rows


def _pages(instruction: Instruction) -> int:
    """Pages a sequence, from the page table ``s32[B,1,pages,1]``.

    The scores' shape holds the size of one page only.
    """
    for operand in instruction.operands[3:]:
        sizes = operand.shape.dimensions
        if operand.shape.dtype == "s32" and len(sizes) == 4 and prod(sizes) == sizes[0] * sizes[2]:
            return sizes[2]
    raise ValueError("it is paged but has no page table")
