"""``dot``, ``scaled-dot`` and ``ragged-dot``."""

from __future__ import annotations

from hloscope.ir import Instruction
from hloscope.ir.attributes import parse_integers
from hloscope.passes.flops.counts import (
    Count,
    Kind,
    accumulation_dtype,
    bounded_by_shapes,
    product_flops,
    result_of,
    size_of,
)

__all__ = ["count_dot", "count_ragged_dot"]


def count_dot(instruction: Instruction) -> Count:
    """Twice the result's elements times the contracted sizes, as XLA counts it.

    Unlike XLA, complex products count their real operations, which are four
    times as many. A scaled dot's block scales are not counted.

    Raises:
        IndexError: The dimension numbers do not fit the operands.
    """
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    result = result_of(instruction)
    contracted = size_of(lhs, instruction.dot_dims.lhs_contracting)
    count = Count(
        Kind.MATMUL,
        product_flops(result, contracted),
        dtypes=(lhs.dtype, rhs.dtype),
        accumulation=accumulation_dtype(instruction.attributes.get("algorithm", ""), result),
    )
    return bounded_by_shapes(count, lhs, rhs, result)


def count_ragged_dot(instruction: Instruction) -> Count:
    """A grouped product, where each row meets the weights of one group only.

    With lhs ``[M, K]``, rhs ``[G, K, N]`` and result ``[M, N]``, or with the
    contracted dimension ragged and the result ``[G, M, N]``, the work is
    ``2 M K N``: the groups share the ragged dimension among them. Where a batch
    dimension is ragged it is ``2 B M K N``. Rows beyond the sum of the group
    sizes, which are known at run time only, do no work.

    Raises:
        IndexError: The dimension numbers do not fit the operands.
    """
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    groups = instruction.operands[2].shape.dimensions[-1]
    result = result_of(instruction)
    dims = instruction.dot_dims
    flops = product_flops(result, size_of(lhs, dims.lhs_contracting))
    ragged = parse_integers(instruction.attributes.get("lhs_ragged_dims", ""))
    if any(dimension in dims.lhs_contracting for dimension in ragged):
        flops //= max(groups, 1)
    count = Count(
        Kind.MATMUL,
        flops,
        dtypes=(lhs.dtype, rhs.dtype),
        note=f"{groups} groups share the ragged dimension",
        accumulation=result.dtype,
    )
    return bounded_by_shapes(count, lhs, rhs, result)
