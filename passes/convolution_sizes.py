"""The sizes of convolutions as the matrix products that a matrix unit computes them by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hloscope.errors import InputError
from hloscope.ir import Instruction
from hloscope.passes.flops.convolution import Forward, convolution_of
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.cudnn_conv import cudnn_convolution_of
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.product_sizes import Sizes
from hloscope.pipeline.analyses import analysis

__all__ = ["ConvolutionSizes", "input_channels", "measure_convolutions"]


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """The convolutions of a program whose sizes as products are known.

    Attributes:
        by_product: Sizes by the instruction. Grouped convolutions are not in it: how they
            reach a matrix unit is the compiler's or the library's choice among many.
        rows: The ledger's rows of these.
    """

    by_product: Mapping[Instruction, Sizes]
    rows: tuple[FlopRow, ...]


@analysis
def measure_convolutions(ledger: FlopLedger) -> ConvolutionSizes:
    """Read ``convolution`` instructions and cuDNN's calls as products.

    Every output position of every example is a row, output features are columns, and
    window taps times input features are summed, as NVIDIA's "Convolutional Layers User's
    Guide" has it (implicit GEMM). Positions that hang over the border count here, though
    not in the ledger. Products that TPUs write as convolutions are none, see
    :func:`~hloscope.passes.flops.convolution.count_convolution`.
    """
    found: dict[Instruction, Sizes] = {}
    rows = []
    for row in ledger.rows:
        if row.count.kind is not Kind.CONVOLUTION or not row.count.flops:
            continue
        try:
            sizes = _sizes(row.instruction)
        except (ValueError, IndexError, InputError):
            continue
        if sizes is not None and sizes.flops >= row.count.flops:
            found[row.instruction] = sizes
            rows.append(row)
    return ConvolutionSizes(found, tuple(rows))


def _sizes(product: Instruction) -> Sizes | None:
    if product.opcode == "convolution":
        convolution = convolution_of(product)
        return None if _is_grouped(convolution) else _of_convolution(convolution)
    target = product.custom_call_target or ""
    if product.opcode == "custom-call" and target.startswith("__cudnn$conv"):
        convolution = cudnn_convolution_of(product)
        return None if _is_grouped(convolution) else _of_library_call(target, convolution)
    return None


def _is_grouped(convolution: Forward) -> bool:
    return convolution.feature_groups != 1 or convolution.batch_groups != 1


def _of_convolution(convolution: Forward) -> Sizes:
    """One of a TPU, by its own roles: a gradient of the filter has the batch for features.

    A TPU lays arrays out in tiles of 128 along the last dimension of the layout. Where that is
    the features, each tap of a window meets them padded; the gradient of a filter,
    whose window is the image, sums over examples and positions at once.
    """
    dims, lhs, result = convolution.dims, convolution.lhs, convolution.result
    taps = tuple(window.size for window in convolution.window.dimensions)
    positions = tuple(result.dimensions[d] for d in dims.output_spatial)
    rows = (result.dimensions[dims.output_batch], *positions)
    columns = (result.dimensions[dims.output_feature],)
    features = lhs.dimensions[dims.input_feature]
    minor = lhs.layout.minor_to_major[:1] if lhs.layout is not None else ()
    if prod(taps) > prod(positions):
        return Sizes((), rows, columns, (*taps, features), parts=_FILTER)
    if minor == (dims.input_feature,):
        return Sizes((), rows, columns, (features,), taps=prod(taps), parts=_TAP)
    return Sizes((), rows, columns, (*taps, features), parts=_PACKED)


_TAP = ("output positions", "output channels", "input channels")
_PACKED = ("output positions", "output channels", "taps times input channels")
_FILTER = ("taps times input channels", "output channels", "positions")
_INPUT = ("input positions", "input channels", "taps times output channels")


def _of_library_call(target: str, convolution: Forward) -> Sizes:
    """One of cuDNN, which describes the forward convolution in all three directions."""
    dims, x, y = convolution.dims, convolution.lhs.dimensions, convolution.result.dimensions
    taps = tuple(window.size for window in convolution.window.dimensions)
    channels, features = (x[dims.input_feature],), (y[dims.output_feature],)
    outputs = (y[dims.output_batch], *(y[d] for d in dims.output_spatial))
    if target.endswith("convBackwardInput"):
        inputs = (x[dims.input_batch], *(x[d] for d in dims.input_spatial))
        return Sizes((), inputs, channels, (*taps, *features), parts=_INPUT)
    if target.endswith("convBackwardFilter"):
        return Sizes((), (*taps, *channels), features, outputs, parts=_FILTER)
    return Sizes((), outputs, features, (*taps, *channels), parts=_PACKED)


def input_channels(sizes: Sizes) -> int | None:
    """Channels that a forward convolution reads; ``None`` for a gradient or another product."""
    return sizes.summed[-1] if sizes.parts in (_TAP, _PACKED) else None
