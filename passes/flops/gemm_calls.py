"""Matrix products that XLA:GPU hands to cuBLAS, cuBLASLt and their ROCm counterparts.

ROCm builds use the same target names for rocBLAS and hipBLASLt.
"""

from __future__ import annotations

from hloscope.ir import Instruction
from hloscope.passes.flops.call_config import integers, nested, section
from hloscope.passes.flops.counts import (
    Count,
    Kind,
    accumulation_dtype,
    bounded_by_shapes,
    product_flops,
    result_of,
    size_of,
    unknown,
)

__all__ = ["count_block_scaled_dot", "count_gemm", "count_grouped_gemm"]


def count_gemm(instruction: Instruction) -> Count:
    """``__cublas$gemm``, ``__cublas$lt$matmul`` and its fp8 and block-scaled forms.

    Operands 0 and 1 are the matrices, whatever follows them. The epilogue
    (bias, activation, ``beta`` times an addend) is elementwise and not counted
    here. Before the end of 2023 the configuration stood at the top level.

    Raises:
        IndexError: The dimension numbers do not fit the operands.
        ValueError: The configuration is no such thing.
    """
    config = section(instruction.backend_config, "gemm_backend_config")
    dims = nested(config, "dot_dimension_numbers")
    if not dims:
        return unknown(Kind.MATMUL, "its configuration names no contracted dimensions")
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    contracted = size_of(lhs, integers(dims, "lhs_contracting_dimensions"))
    result = result_of(instruction)
    algorithm = str(nested(config, "precision_config").get("algorithm", ""))
    count = Count(
        Kind.MATMUL,
        product_flops(result, contracted),
        dtypes=(lhs.dtype, rhs.dtype),
        accumulation=accumulation_dtype(algorithm, result),
    )
    return bounded_by_shapes(count, lhs, rhs, result)


def count_grouped_gemm(instruction: Instruction) -> Count:
    """``__cublas$lt$groupedMatmul``: ``2 M K N``, each row in one group.

    Where the contracted dimension is the ragged one, every group has a result
    of its own but only its share of the sum.

    Raises:
        IndexError: The dimension numbers do not fit the operands.
        ValueError: The configuration is no such thing.
    """
    grouped = section(instruction.backend_config, "grouped_gemm_backend_config")
    ragged = nested(grouped, "ragged_dot_dimension_numbers")
    gemm = nested(grouped, "gemm_backend_config")
    dims = nested(ragged, "dot_dimension_numbers") or nested(gemm, "dot_dimension_numbers")
    if not dims:
        return unknown(Kind.MATMUL, "its configuration names no contracted dimensions")
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    contracting = integers(dims, "lhs_contracting_dimensions")
    result = result_of(instruction)
    flops = product_flops(result, size_of(lhs, contracting))
    if set(integers(ragged, "lhs_ragged_dimensions")) & set(contracting):
        flops //= max(instruction.operands[2].shape.num_elements, 1)
    return Count(Kind.MATMUL, flops, dtypes=(lhs.dtype, rhs.dtype), accumulation=result.dtype)


def count_block_scaled_dot(instruction: Instruction) -> Count:
    """``__cudnn$blockScaledDot`` and ``__op$block_scaled_dot``: both contract the last dimension.

    Raises:
        IndexError: It has fewer than two operands.
    """
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    result = result_of(instruction)
    flops = product_flops(result, size_of(lhs, (-1,)))
    return Count(Kind.MATMUL, flops, dtypes=(lhs.dtype, rhs.dtype), accumulation=result.dtype)
