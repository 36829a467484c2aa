"""Fused attention that XLA:GPU hands to cuDNN.

The products inside are those of attention as everyone writes it: scores from
queries and keys, values weighted by them, and four more with one of these
repeated on the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from hloscope.ir import Instruction
from hloscope.passes.flops.call_config import integer, integers, nested, section
from hloscope.passes.flops.counts import Count, Kind, result_of, size_of, unknown
from hloscope.pipeline.findings import Basis

__all__ = ["count_cudnn_attention", "visible_pairs"]

_GRADIENT_OPERAND = 4  # q, k, v, then statistics (fp8: the output), then the output's gradient


def count_cudnn_attention(instruction: Instruction) -> Count:
    """Count a forward or backward call, dense: every query meets every key.

    With ``P`` pairs a head, forward is ``2 B N P (Hqk + Hv)``. Backward repeats
    the scores and takes four more products: ``2 B N P (3 Hqk + 2 Hv)``, of
    which ``2 B N P Hqk`` is that repetition. Grouped heads change nothing, as
    ``N`` counts the query's. What a causal mask leaves stands in
    ``masked_flops``.

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
    per_pair = 2 * batch * heads * (3 * wide + 2 * deep if backward else wide + deep)
    mask = str(config.get("mask_type", "NO_MASK"))
    visible = visible_pairs(
        queries,
        keys,
        causal="CAUSAL" in mask,
        window=integer(config.get("sliding_window_length", 0), "sliding_window_length"),
    )
    q, k = instruction.operands[0].shape, instruction.operands[1].shape
    return Count(
        Kind.ATTENTION,
        per_pair * queries * keys,
        Basis.MODELLED,
        "dense attention, backward in five products" if backward else "dense attention",
        (q.dtype, k.dtype),
        None if visible == queries * keys else per_pair * visible,
        _note(config, mask),
    )


def visible_pairs(queries: int, keys: int, *, causal: bool, window: int = 0) -> int:
    """Pairs of one query and one key that a mask leaves.

    The causal mask is aligned at the top left: query ``i`` sees the keys up to
    ``i``. A sliding window of length ``w`` lets it see the last ``w`` of them;
    it comes with a causal mask, and 0 means none.
    """
    if not causal and not window:
        return queries * keys
    reach = min(keys, window) if window else keys
    rising = min(queries, reach)
    return rising * (rising + 1) // 2 + (queries - rising) * reach


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


def _note(config: Mapping[str, Any], mask: str) -> str:
    notes = []
    if "PADDING" in mask:
        notes.append("sequence lengths are known at run time only; dense is the most it can be")
    if integer(config.get("max_seg_per_batch", 1), "max_seg_per_batch") > 1:
        notes.append("sequences are packed; dense is the most it can be")
    return "; ".join(notes)
