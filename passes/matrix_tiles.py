"""Tiles in which matrix units multiply, and what products fill of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hloscope.chips import Chip, ChipKind
from hloscope.ir import Shape
from hloscope.ir.dtypes import BITS
from hloscope.passes.convolution_sizes import ConvolutionSizes
from hloscope.passes.execution import Execution
from hloscope.passes.flops.counts import result_of
from hloscope.passes.flops.ledger import FlopRow
from hloscope.passes.product_sizes import ProductSizes, Sizes
from hloscope.passes.roofline import Roofline
from hloscope.pipeline.analyses import analysis

__all__ = ["MatrixPadding", "PaddedProduct", "Tile", "UnalignedProduct", "pad_products", "tile_of"]


@dataclass(frozen=True, slots=True)
class Tile:
    """The smallest piece of a product that a matrix unit works on.

    Attributes:
        streamed: Rows of the side that flows through the unit.
        held: Columns of the side that the unit holds.
        summed: Elements that it sums over at a time.
        source: Where the sizes come from.
    """

    streamed: int
    held: int
    summed: int
    source: str

    def padded(self, sizes: Sizes) -> tuple[int, int, int]:
        """Rows, columns and summed elements, each rounded up to whole tiles.

        Either side may be the one that flows: the cheaper way is taken. Several
        dimensions that play one part count as one, as if they lay behind one another.
        """
        rows, columns, summed = prod(sizes.rows), prod(sizes.columns), prod(sizes.summed)
        ways = [
            (_up(rows, self.streamed), _up(columns, self.held)),
            (_up(rows, self.held), _up(columns, self.streamed)),
        ]
        return *min(ways, key=prod), _up(summed, self.summed)


# Cloud TPU documentation, system architecture: the matrix unit of a TensorCore is an
# array of 128 x 128 multiply-adds, since v6e one of 256 x 256.
_WIDE_ARRAYS = frozenset({"v6e"})
_TPU_SOURCE = "Cloud TPU documentation, matrix unit of {0} x {0}; registers of 8 rows of 32 bits"
# PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions": mma.m16n8kK, K by type.
_MMA_SUMMED = {4: 64, 8: 32, 16: 16, 32: 8, 64: 4}
_ALIGNMENT = 16
_PTX_SOURCE = "PTX ISA, mma.m16n8k{}"


def tile_of(chip: Chip, dtypes: Sequence[str]) -> Tile | None:
    """The tile of a chip's matrix unit for operands of these types.

    A TPU rounds float32 to bfloat16 on the way into the array; its registers hold 8
    rows of 32 bits, 16 of 16 or 32 of 8. ``None`` for CPUs, and for types of which
    nothing is known.
    """
    widths = [BITS[dtype] for dtype in dtypes if dtype in BITS]
    if len(widths) < len(dtypes) or not widths or max(widths) > 64:
        return None
    width = max(widths)
    if chip.kind is ChipKind.TPU:
        if width > 32:
            return None
        side = 256 if chip.name in _WIDE_ARRAYS else 128
        return Tile(8 * 32 // max(width, 8), side, side, _TPU_SOURCE.format(side))
    if _is_of_nvidia(chip) and width in _MMA_SUMMED:
        return Tile(16, 8, _MMA_SUMMED[width], _PTX_SOURCE.format(_MMA_SUMMED[width]))
    return None


def _is_of_nvidia(chip: Chip) -> bool:
    return chip.kind is ChipKind.GPU and chip.vendor != "AMD"


@dataclass(frozen=True, slots=True)
class PaddedProduct:
    """One product, or a convolution as one, in whole tiles.

    Attributes:
        row: The product.
        sizes: Its sizes.
        tile: The matrix unit's tile.
        padded: Rows, columns and summed elements in whole tiles.
        lost: Seconds per execution that its launch takes longer at the chip's peak because
            padding is multiplied too. None where its memory traffic takes longer anyway.
    """

    row: FlopRow
    sizes: Sizes
    tile: Tile
    padded: tuple[int, int, int]
    lost: float

    @property
    def padded_flops(self) -> int:
        """FLOPs of one execution in whole tiles, as the useful ones are counted."""
        return round((self.row.count.flops or 0) * _growth(self.sizes, self.padded))


@dataclass(frozen=True, slots=True)
class UnalignedProduct:
    """One product on a GPU of an array whose rows do not start at multiples of 16 bytes.

    Attributes:
        row: The product.
        array: The first of its operands and its result that is so.
        length: Elements of one of the array's rows, as they lie in memory.
        seconds: The launch's time at the roofline, per execution.
    """

    row: FlopRow
    array: Shape
    length: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MatrixPadding:
    """The products of a program that do not fit the matrix unit.

    Attributes:
        rows: Those whose padding takes time.
        unaligned: Those whose arrays are not aligned.
        floor: Seconds of the whole step at the roofline.
    """

    rows: tuple[PaddedProduct, ...]
    unaligned: tuple[UnalignedProduct, ...]
    floor: float

    @property
    def padded_floor(self) -> float:
        """Seconds of the whole step with the time that padding takes."""
        return self.floor + sum(row.lost for row in self.rows)


@analysis
def pad_products(
    chip: Chip,
    sizes: ProductSizes,
    convolutions: ConvolutionSizes,
    roofline: Roofline,
    execution: Execution,
) -> MatrixPadding:
    """Hold the padded product against the launch's own time on the roofline.

    Raises:
        Unavailable: There is no chip.
    """
    times = {row.instruction: row for row in roofline.rows}
    rows = []
    unaligned = []
    measured = {**sizes.by_product, **convolutions.by_product}
    for row in (*sizes.rows, *convolutions.rows):
        tile = tile_of(chip, row.count.dtypes)
        size = measured[row.instruction]
        launched = execution.launch_of(row.instruction)
        launch = times.get(launched) if launched is not None else None
        if tile is None or launch is None or not launch.compute or not launch.flops:
            continue
        if _is_of_nvidia(chip) and (array := _unaligned(row)) is not None:
            unaligned.append(UnalignedProduct(row, *array, launch.nominal_seconds))
        padded = tile.padded(size)
        more = (row.count.flops or 0) * (_growth(size, padded) - 1)
        slower = launch.compute * (launch.flops + more) / launch.flops
        lost = max(slower - max(launch.compute, launch.memory or 0.0), 0.0)
        # A product with a vector waits for the matrix, and is no work for a matrix unit.
        if lost and prod(size.rows) > 1 and prod(size.columns) > 1:
            rows.append(PaddedProduct(row, size, tile, padded, lost * launch.times.nominal))
    return MatrixPadding(tuple(rows), tuple(unaligned), roofline.step.floor.nominal)


def _growth(sizes: Sizes, padded: tuple[int, int, int]) -> float:
    """How much more a product is in whole tiles."""
    return prod(padded) / max(prod((*sizes.rows, *sizes.columns, *sizes.summed)), 1)


def _unaligned(row: FlopRow) -> tuple[Shape, int] | None:
    """The first array with several rows whose length is no multiple of 16 bytes.

    "For best efficiency ... multiples of 16 bytes" is what NVIDIA's "Matrix Multiplication
    Background User's Guide" asks of the sizes; its tensor memory accelerator
    takes no other strides (CUDA programming guide, tensor maps).
    """
    product = row.instruction
    for shape in (*(o.shape for o in product.operands[:2]), result_of(product)):
        order = shape.layout.minor_to_major if shape.layout is not None else ()
        sizes = [shape.dimensions[d] for d in order if d < len(shape.dimensions)]
        lengths = [size for size in sizes if size > 1]
        if len(lengths) > 1 and lengths[0] * shape.element_bits % (8 * _ALIGNMENT):
            return shape, lengths[0]
    return None


def _up(size: int, tile: int) -> int:
    return -(-size // tile) * tile
