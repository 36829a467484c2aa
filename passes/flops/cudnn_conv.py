"""Convolutions that XLA:GPU hands to cuDNN (or, under the same names, to MIOpen)."""

from __future__ import annotations

from hloscope.ir import Instruction, Shape
from hloscope.ir.attributes import ConvolutionDims, Window, parse_dim_labels
from hloscope.passes.flops.convolution import Forward, forward_flops
from hloscope.passes.flops.counts import Count, Kind, result_of

__all__ = ["count_cudnn_convolution", "cudnn_convolution_of"]


def count_cudnn_convolution(instruction: Instruction) -> Count:
    """Count a forward, input-gradient or filter-gradient call.

    All three cost the same, because each pairs the same elements.

    Raises:
        IndexError: The labels do not fit the shapes.
        ValueError: There are no labels, or see :func:`valid_positions`.
    """
    first, second = instruction.operands[0].shape, instruction.operands[1].shape
    flops = forward_flops(cudnn_convolution_of(instruction))
    return Count(
        Kind.CONVOLUTION,
        flops,
        dtypes=(first.dtype, second.dtype),
        accumulation=result_of(instruction).dtype,
    )


def cudnn_convolution_of(instruction: Instruction) -> Forward:
    """The forward convolution that a call computes, or a gradient of which.

    Window and labels describe the forward convolution of X with W to Y in
    every case; what differs is which of the three is the result.

    Raises:
        ValueError: There are no labels.
    """
    target = instruction.custom_call_target or ""
    first, second = instruction.operands[0].shape, instruction.operands[1].shape
    result = result_of(instruction)
    if target.endswith("convBackwardInput"):
        x, y = result, first
    elif target.endswith("convBackwardFilter"):
        x, y = first, second
    else:
        x, y = first, result
    labels = instruction.attributes.get("dim_labels")
    if labels is None:
        raise ValueError("it has no dim_labels")
    return Forward(
        _without_vectors(x, labels.partition("_")[0]),
        _without_vectors(y, labels.partition("->")[2]),
        instruction.window or Window(),
        _dims(labels),
        instruction.integer("feature_group_count", 1),
    )


def _dims(labels: str) -> ConvolutionDims:
    return parse_dim_labels(labels.replace("?", ""))


def _without_vectors(shape: Shape, labels: str) -> Shape:
    """Fold the trailing dimension of int8's vectorised layouts into the features.

    ``bf01?`` holds four or thirty-two features side by side in a last dimension.
    """
    if not labels.endswith("?"):
        return shape
    features = labels.index("f")
    sizes = list(shape.dimensions)
    sizes[features] *= sizes.pop()
    return Shape(shape.dtype, tuple(sizes))
