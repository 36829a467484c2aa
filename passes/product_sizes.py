"""The sizes of matrix products: batch, rows, columns and what is summed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hloscope.errors import InputError
from hloscope.ir import Instruction, Shape
from hloscope.ir.attributes import Window
from hloscope.passes.flops.call_config import integers, nested, section
from hloscope.passes.flops.counts import Kind, result_of
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.pipeline.analyses import analysis

__all__ = ["ProductSizes", "Sizes", "measure_products"]

_GEMM_TARGETS = ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8")


@dataclass(frozen=True, slots=True)
class Sizes:
    """A batch of products of a matrix of ``rows x summed`` and one of ``summed x columns``.

    Attributes:
        batch: Dimensions that both sides and the result share; one product each.
        rows: Dimensions of the result that come from the left side.
        columns: Dimensions of the result that come from the right side.
        summed: Contracted dimensions.
        taps: How many such products are added up one after another.
        parts: What rows, columns and summed elements are called.
    """

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]
    taps: int = 1
    parts: tuple[str, str, str] = ("rows", "columns", "summed size")

    @property
    def flops(self) -> int:
        """Multiplies and adds of real numbers: ``2 B M N K``, as often as there are taps."""
        return 2 * self.taps * prod((*self.batch, *self.rows, *self.columns, *self.summed))


@dataclass(frozen=True, slots=True)
class ProductSizes:
    """The matrix products of a program whose sizes are known.

    Attributes:
        by_product: Sizes by the instruction that computes the product. Convolutions
            that are no matrix products, sparse and ragged ones, and kernels are not in it.
        rows: The ledger's rows of these.
    """

    by_product: Mapping[Instruction, Sizes]
    rows: tuple[FlopRow, ...]


@analysis
def measure_products(ledger: FlopLedger) -> ProductSizes:
    """Read the sizes of dots, of cuBLAS calls and of products that TPUs write as convolutions.

    Sizes that do not multiply up to the ledger's own count are left out.
    """
    found: dict[Instruction, Sizes] = {}
    rows = []
    for row in ledger.rows:
        if row.count.kind is not Kind.MATMUL or row.count.flops is None:
            continue
        try:
            sizes = _sizes(row.instruction)
        except (ValueError, IndexError, InputError):
            continue
        if sizes is not None and sizes.flops == row.count.flops:
            found[row.instruction] = sizes
            rows.append(row)
    return ProductSizes(found, tuple(rows))


def _sizes(product: Instruction) -> Sizes | None:
    if product.opcode == "dot":
        dims = product.dot_dims
        return _of_dot(
            product, dims.lhs_batch, dims.rhs_batch, dims.lhs_contracting, dims.rhs_contracting
        )
    if product.opcode == "convolution":
        return _of_convolution(product)
    if product.opcode == "custom-call" and product.custom_call_target in _GEMM_TARGETS:
        config = nested(
            section(product.backend_config, "gemm_backend_config"), "dot_dimension_numbers"
        )
        return _of_dot(
            product,
            integers(config, "lhs_batch_dimensions"),
            integers(config, "rhs_batch_dimensions"),
            integers(config, "lhs_contracting_dimensions"),
            integers(config, "rhs_contracting_dimensions"),
        )
    return None


def _of_dot(
    product: Instruction,
    lhs_batch: tuple[int, ...],
    rhs_batch: tuple[int, ...],
    lhs_summed: tuple[int, ...],
    rhs_summed: tuple[int, ...],
) -> Sizes:
    lhs, rhs = product.operands[0].shape, product.operands[1].shape
    return Sizes(
        tuple(lhs.dimensions[d] for d in lhs_batch),
        _others(lhs, lhs_batch + lhs_summed),
        _others(rhs, rhs_batch + rhs_summed),
        tuple(lhs.dimensions[d] for d in lhs_summed),
    )


def _others(shape: Shape, taken: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for d, size in enumerate(shape.dimensions) if d not in taken)


def _of_convolution(product: Instruction) -> Sizes | None:
    """A convolution whose spatial dimensions each play one part in a product.

    The dimension is a batch one where all three have it, contracted where the
    result lacks it, and otherwise free on the side that has it.
    """
    dims = product.dim_labels
    if dims is None:
        return None
    lhs, rhs = product.operands[0].shape.dimensions, product.operands[1].shape.dimensions
    result = result_of(product).dimensions
    batch: list[int] = []
    rows, columns = [lhs[dims.input_batch]], [rhs[dims.kernel_output_feature]]
    summed = [lhs[dims.input_feature]]
    windows = (product.window or Window()).dimensions
    for i, o, window in zip(dims.input_spatial, dims.output_spatial, windows, strict=True):
        left, right, out = lhs[i], window.size, result[o]
        if left == right == out:
            batch.append(out)
        elif left == right and out == 1:
            summed.append(left)
        elif right == 1 and left == out:
            rows.append(out)
        elif left == 1 and right == out:
            columns.append(out)
        else:
            return None
    return Sizes(tuple(batch), tuple(rows), tuple(columns), tuple(summed))
