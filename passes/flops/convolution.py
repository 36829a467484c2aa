"""``convolution``, and the same arithmetic for library calls that describe one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from hloscope.ir import Instruction, Shape
from hloscope.ir.attributes import ConvolutionDims, Window
from hloscope.passes.flops.counts import Count, Kind, bounded_by_shapes, product_flops, result_of
from hloscope.passes.flops.window_positions import valid_positions

__all__ = ["Forward", "convolution_of", "count_convolution", "forward_flops", "shared_by_groups"]


@dataclass(frozen=True, slots=True)
class Forward:
    """A convolution as its window and labels describe it.

    Attributes:
        lhs: The input.
        result: The output.
        window: One dimension for each spatial dimension, in their order.
        dims: Which dimension of each plays which part.
        feature_groups: Groups that the input's features are split into.
        batch_groups: Groups that the input's batch is split into.
    """

    lhs: Shape
    result: Shape
    window: Window
    dims: ConvolutionDims
    feature_groups: int = 1
    batch_groups: int = 1

    def positions(self) -> list[int]:
        """Valid positions of each spatial dimension.

        Raises:
            IndexError: The labels do not fit the shapes.
            ValueError: Window and labels differ in rank; see :func:`valid_positions`.
        """
        sizes = zip(
            self.dims.input_spatial, self.dims.output_spatial, self.window.dimensions, strict=True
        )
        return [
            valid_positions(self.lhs.dimensions[i], self.result.dimensions[o], window)
            for i, o, window in sizes
        ]


def forward_flops(convolution: Forward) -> int:
    """FLOPs by valid positions, equal to XLA's ``HloCostAnalysis`` for real types.

    Twice input features (of one group) times output features times batch (of
    one group) times, for each spatial dimension, the pairs of output position
    and window tap that meet an element of the input.

    Raises:
        IndexError: The labels do not fit the shapes.
        ValueError: As for :meth:`Forward.positions`.
    """
    dims, lhs, result = convolution.dims, convolution.lhs.dimensions, convolution.result
    features = lhs[dims.input_feature] // max(convolution.feature_groups, 1)
    batch = lhs[dims.input_batch] // max(convolution.batch_groups, 1)
    one = Shape(result.dtype, (result.dimensions[dims.output_feature], batch))
    return product_flops(one, features * prod(convolution.positions()))


def convolution_of(instruction: Instruction) -> Forward:
    """What a ``convolution`` says of itself.

    Raises:
        ValueError: It has no labels.
    """
    dims = instruction.dim_labels
    if dims is None:
        raise ValueError("it has no dim_labels")
    return Forward(
        instruction.operands[0].shape,
        result_of(instruction),
        instruction.window or Window(),
        dims,
        instruction.integer("feature_group_count", 1),
        instruction.integer("batch_group_count", 1),
    )


def count_convolution(instruction: Instruction) -> Count:
    """Count a ``convolution``.

    TPU compilers write matrix products as convolutions whose spatial
    dimensions are batch, contracted or free ones. They are reported as matrix
    products unless their op_name says that the program asked for a
    convolution, which a one-by-one window may be.

    Raises:
        IndexError: The labels do not fit the shapes.
        ValueError: As for :meth:`Forward.positions`, or there are no labels.
    """
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    convolution = convolution_of(instruction)
    asked_for = "conv_general_dilated" in instruction.op_name
    product = not asked_for and _is_matrix_product(convolution)
    kind = Kind.MATMUL if product else Kind.CONVOLUTION
    count = Count(
        kind,
        forward_flops(convolution),
        dtypes=(lhs.dtype, rhs.dtype),
        accumulation=convolution.result.dtype,
    )
    return bounded_by_shapes(count, lhs, rhs, convolution.result)


def shared_by_groups(count: Count, groups: int) -> Count:
    """The count of a ragged product that is written as a dense one over every group."""
    if count.flops is None:
        return count
    return replace(
        count,
        flops=count.flops // groups,
        note=f"ragged: each row meets one of {groups} groups, where the window spans all",
    )


def _is_matrix_product(convolution: Forward) -> bool:
    """Whether every spatial dimension is a batch, a contracted or a free one.

    In each of these, output positions times taps that meet the input are as
    few as a product over that dimension needs.
    """
    if convolution.feature_groups != 1 or convolution.batch_groups != 1:
        return False
    spatial = zip(
        convolution.dims.input_spatial,
        convolution.dims.output_spatial,
        convolution.window.dimensions,
        convolution.positions(),
        strict=True,
    )
    return all(
        _is_one_dimension_of_a_product(
            convolution.lhs.dimensions[i], window.size, convolution.result.dimensions[o], valid
        )
        for i, o, window, valid in spatial
    )


def _is_one_dimension_of_a_product(lhs: int, rhs: int, result: int, valid: int) -> bool:
    batch = lhs == rhs == result == valid
    contracted = lhs == rhs == valid and result == 1
    free_left = lhs == result == valid and rhs == 1
    free_right = rhs == result == valid and lhs == 1
    return batch or contracted or free_left or free_right
