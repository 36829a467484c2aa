"""Transformer Engine's calls from JAX: attention and matrix products.

What they compute stands in their attributes. Packed layouts put keys and
values into the queries' operand, so that shapes of operands would mislead.
Calls from before 2025 carry opaque descriptors instead, and are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from hloscope.ir import Instruction
from hloscope.passes.flops.attention import Attention, Mask
from hloscope.passes.flops.call_config import integer, nested
from hloscope.passes.flops.counts import Count, Kind, result_of, unknown

__all__ = ["count_te_attention", "count_te_gemm", "count_te_grouped_gemm"]

_PADDED = (1, 3, 5)
_CAUSAL = (2, 3, 4, 5)
_BOTTOM_RIGHT = (4, 5)
_RHS_GROUPS = slice(7, 9)  # after lhs, rhs, their scales and the bias: lhs, rhs and out groups
_GROUPS = slice(5, 11)


def count_te_attention(instruction: Instruction) -> Count:
    """``te_fused_attn_forward_ffi`` and ``te_fused_attn_backward_ffi``.

    Their ``mask_type`` is 0 for none, 1 padding, 2 causal, 3 both, and 4 and 5
    the causal ones aligned at the bottom right.

    Raises:
        ValueError: An attribute is no integer.
    """
    config = instruction.backend_config
    head = "qk_head_dim" if "qk_head_dim" in config else "head_dim"
    value = "v_head_dim" if "v_head_dim" in config else head
    names = ("input_batch", "attn_heads", "q_max_seqlen", "kv_max_seqlen", head, value)
    missing = [name for name in names if name not in config]
    if missing:
        return unknown(Kind.ATTENTION, f"its attributes lack {', '.join(missing)}")
    sizes = [integer(config[name], name) for name in names]
    dtype = instruction.operands[0].shape.dtype
    backward = "backward" in (instruction.custom_call_target or "")
    return Attention(*sizes).count(_mask(config), (dtype, dtype), backward=backward)


def _mask(config: Mapping[str, Any]) -> Mask:
    kind = integer(config.get("mask_type", 0), "mask_type")
    left = integer(config.get("window_size_left", -1), "window_size_left")
    right = integer(config.get("window_size_right", -1), "window_size_right")
    segments = integer(config.get("max_segments_per_seq", 1), "max_segments_per_seq")
    return Mask(
        left=left if left >= 0 else None,
        right=0 if kind in _CAUSAL else right if right >= 0 else None,
        at_the_end=kind in _BOTTOM_RIGHT or config.get("bottom_right_diagonal") is True,
        padded=kind in _PADDED or segments > 1,
    )


def count_te_gemm(instruction: Instruction) -> Count:
    """``te_gemm_ffi`` and ``te_gemm_v2_ffi``: ``2 M N K``.

    The left side is taken as a matrix, split at ``lhs_axis_boundary``. Newer
    versions hold the attributes in a part of their own, ``config``.

    Raises:
        ValueError: An attribute is no integer.
    """
    config = nested(instruction.backend_config, "config") or instruction.backend_config
    if "lhs_axis_boundary" not in config:
        return unknown(Kind.MATMUL, "its attributes lack lhs_axis_boundary")
    lhs, rhs = instruction.operands[0].shape, instruction.operands[2].shape
    boundary = integer(config["lhs_axis_boundary"], "lhs_axis_boundary")
    contracted = prod(
        lhs.dimensions[:boundary] if config.get("lhs_transposed") else lhs.dimensions[boundary:]
    )
    result = result_of(instruction)
    return Count(
        Kind.MATMUL,
        2 * result.num_elements * contracted,
        dtypes=(lhs.dtype, rhs.dtype),
        accumulation=result.dtype,
    )


def count_te_grouped_gemm(instruction: Instruction) -> Count:
    """``te_grouped_gemm_ffi`` and its second version: ``2 M K N``, each row in one group.

    Six operands hold the groups' sizes, empty where a side is not ragged. With
    a ragged right side the contracted dimension is the ragged one, and each
    group has a result of its own.

    Raises:
        IndexError: It has too few operands.
        ValueError: An attribute is no integer, or the sizes do not fit.
    """
    config = instruction.backend_config
    side = "lhs_right_size" if config.get("lhs_is_trans") else "lhs_left_size"
    if side not in config:
        return unknown(Kind.MATMUL, f"its attributes lack {side}")
    lhs, rhs = instruction.operands[0].shape, instruction.operands[2].shape
    groups = max(o.shape.num_elements for o in instruction.operands[_GROUPS])
    contracted = any(o.shape.num_elements for o in instruction.operands[_RHS_GROUPS])
    result = result_of(instruction)
    rows = integer(config[side], side) * (groups if contracted else 1)
    if rows <= 0 or result.num_elements % rows:
        raise ValueError(f"its result {result} does not fit {rows} rows")
    return Count(
        Kind.MATMUL,
        2 * lhs.num_elements * (result.num_elements // rows),
        dtypes=(lhs.dtype, rhs.dtype),
        note=f"{groups} groups share the ragged dimension",
        accumulation=result.dtype,
    )
