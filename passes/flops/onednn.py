"""Products that XLA:CPU hands to oneDNN."""

from __future__ import annotations

from hloscope.ir import Instruction
from hloscope.passes.flops.call_config import section
from hloscope.passes.flops.convolution import count_convolution
from hloscope.passes.flops.counts import Count, Kind, product_flops, result_of, size_of, unknown

__all__ = ["count_onednn_convolution", "count_onednn_matmul"]


def count_onednn_matmul(instruction: Instruction) -> Count:
    """``__onednn$matmul``: its left side contracts the last dimension, or the one before.

    Raises:
        IndexError: It has fewer than two operands, or of too low a rank.
    """
    config = section(instruction.backend_config, "onednn_matmul_config")
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    result = result_of(instruction)
    contracted = size_of(lhs, (-2 if config.get("transpose_a") is True else -1,))
    return Count(
        Kind.MATMUL,
        product_flops(result, contracted),
        dtypes=(lhs.dtype, rhs.dtype),
        accumulation=result.dtype,
    )


def count_onednn_convolution(instruction: Instruction) -> Count:
    """``__onednn$convolution``, where it kept the window and labels of the convolution.

    Raises:
        IndexError: The labels do not fit the shapes.
        ValueError: As for :func:`count_convolution`.
    """
    if instruction.dim_labels is None:
        return unknown(Kind.CONVOLUTION, "it has no dim_labels")
    return count_convolution(instruction)
