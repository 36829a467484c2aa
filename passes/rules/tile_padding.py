"""HS503."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hloscope.ir import Instruction
from hloscope.passes.convolution_sizes import input_channels
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.ledger import FlopRow
from hloscope.passes.matrix_tiles import MatrixPadding, PaddedProduct, UnalignedProduct
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["tile_padding"]

_MODEL = "whole tiles of the matrix unit, work and memory at the roofline"
_SHOWN = 3
_FEW_CHANNELS = 16  # as of images, which no width of a layer brings to a whole tile


@rule("HS503", "tile-padding", Category.REDUNDANT_WORK)
def tile_padding(padding: MatrixPadding, limits: Limits) -> Iterator[Finding]:
    """Finds products and convolutions whose sizes leave much of the matrix unit's tiles empty.

    What it does:
        Rounds the rows, columns and summed elements of each matrix product up to the
        tiles of the chip's matrix unit: an array of 128 x 128 on a TPU (256 x 256 on v6e)
        that rows flow through in eights, sixteens or thirty-twos by type; 16 x 8 and
        32 bytes of summed elements on an NVIDIA GPU. Sizes are those of the optimized
        program, and one device's share of them. A convolution is the product that computes it:
        output positions by output channels, summed over window taps and input channels;
        where a TPU has the channels along its lanes each tap's are rounded up by themselves.
        Grouped ones are left out. What padding costs is the time that the
        product takes longer for it at the chip's peak, beyond what its memory traffic
        takes anyway: a small batch that waits for its weights loses nothing. It is
        summed by source line, and listed from ``padding_share`` (2%) of the step's floor with
        padding on. Whatever tiles a library's kernel chooses are larger, so it is the least. On an
        NVIDIA GPU arrays whose rows are no multiple of 16 bytes are named too, as a note,
        from ``warning_share`` (5%) of the step's floor on: kernels for them load less at a time.

    Why it costs:
        A matrix unit multiplies whole tiles. On a TPU heads of 64 leave half of the array
        idle where queries meet keys, and a width of 130 costs as much as one of 256.

    Example:
            experts = jnp.einsum("td,edf->tef", x, w)     # d = 1088: nine tiles of 128

    Use instead:
        Choose sizes that are multiples of the tile, or pad once, where the parameters are
        made (a vocabulary, a hidden width); fewer and wider heads do the same work:

            config = dataclasses.replace(config, width=1152, heads=9)     # heads of 128
    """
    if not padding.floor:
        return
    lines: dict[object, list[PaddedProduct]] = {}
    for row in padding.rows:
        lines.setdefault(_place(row.row.instruction), []).append(row)
    for rows in lines.values():
        share = sum(row.lost for row in rows) / padding.padded_floor
        if share >= limits.padding_share:
            yield _finding(rows, share, limits)
    unaligned: dict[object, list[UnalignedProduct]] = {}
    for product in padding.unaligned:
        unaligned.setdefault(_place(product.row.instruction), []).append(product)
    for products in unaligned.values():
        share = sum(product.seconds for product in products) / padding.floor
        if share >= limits.warning_share:
            yield _misaligned(products, share)


def _is_convolution(row: FlopRow) -> bool:
    return row.count.kind is Kind.CONVOLUTION


def _place(product: Instruction) -> object:
    location = product.location
    return (location.file, location.line) if location else product.op_name or product


def _finding(rows: Sequence[PaddedProduct], share: float, limits: Limits) -> Finding:
    worst = max(rows, key=lambda row: row.lost)
    lost = Quantity(
        "time in padding", sum(row.lost for row in rows), Unit.SECONDS, Basis.MODELLED, _MODEL
    )
    useful = sum(row.row.nominal for row in rows)
    padded = sum(row.padded_flops * row.row.times.nominal for row in rows)
    notes = dict.fromkeys(
        _named(row) for row in sorted(rows, key=lambda row: -row.lost) if _odd(row)
    )
    noun = "convolution" if all(_is_convolution(row.row) for row in rows) else "product"
    many = f"{len(rows)} {noun}s do" if len(rows) > 1 else f"a {noun} does"
    return Finding(
        code="HS503",
        name="tile-padding",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(share),
        message=f"{many} not fill the tiles of the matrix unit",
        site=instruction_site(worst.row.instruction),
        evidence=(
            lost,
            Quantity("share of the step with padding", share, Unit.SHARE, Basis.MODELLED, _MODEL),
            Quantity("useful FLOPs", useful / padded, Unit.SHARE, Basis.MODELLED, _MODEL),
        ),
        cost=lost,
        fix=_fix(worst),
        notes=(*list(notes)[:_SHOWN], f"tiles: {worst.tile.source}"),
    )


def _fix(worst: PaddedProduct) -> str:
    channels = input_channels(worst.sizes)
    if channels is not None and channels < _FEW_CHANNELS and worst.sizes.taps == 1:
        return (
            f"Fold blocks of pixels into the {channels} channels in front of the convolution "
            "(space to depth), with a window and a stride that are as much smaller."
        )
    return (
        "Make "
        + " and ".join(f"the {part} a multiple of {tile}" for part, _, _, tile in _odd(worst))
        + ", or pad once where the arrays are made."
    )


def _misaligned(products: Sequence[UnalignedProduct], share: float) -> Finding:
    """A note: what it costs depends on the kernel that the library or XLA falls back to."""
    worst = max(products, key=lambda product: product.seconds)
    model = "work and memory at the roofline, as if the arrays were aligned"
    affected = Quantity(
        "time of these products",
        sum(product.seconds for product in products),
        Unit.SECONDS,
        Basis.MODELLED,
        model,
    )
    convolution = all(_is_convolution(product.row) for product in products)
    noun = "convolution" if convolution else "product"
    many = f"{len(products)} {noun}s take" if len(products) > 1 else f"a {noun} takes"
    multiple = 16 * 8 // worst.array.element_bits
    size = f"{worst.length} channels" if convolution else f"size of {worst.length}"
    return Finding(
        code="HS503",
        name="tile-padding",
        category=Category.REDUNDANT_WORK,
        severity=Severity.NOTE,
        message=f"{many} arrays whose rows are no multiple of 16 bytes",
        site=instruction_site(worst.row.instruction),
        evidence=(
            affected,
            Quantity("share of the step's floor", share, Unit.SHARE, Basis.MODELLED, model),
            Quantity("elements of a row", worst.length),
        ),
        cost=affected,
        fix=f"Make the {size} a multiple of {multiple} (better of 64), by padding once where it "
        "is chosen: with the parameters, or with a sequence.",
        notes=(
            f"largest: {worst.array}, {worst.row.instruction.name}",
            "loads of 16 bytes and the tensor memory accelerator need such rows; what a kernel "
            "without them loses depends on the kernel",
        ),
    )


def _odd(row: PaddedProduct) -> list[tuple[str, int, int, int]]:
    """Parts that do not fill whole tiles: name, size, size in whole tiles, tile."""
    sizes = (prod(row.sizes.rows), prod(row.sizes.columns), prod(row.sizes.summed))
    rows, columns, _ = row.padded
    tile = row.tile
    flowing = rows == -(-sizes[0] // tile.streamed) * tile.streamed and columns == (
        -(-sizes[1] // tile.held) * tile.held
    )
    tiles = (tile.streamed, tile.held) if flowing else (tile.held, tile.streamed)
    parts = zip(row.sizes.parts, sizes, row.padded, (*tiles, tile.summed), strict=True)
    return [part for part in parts if part[1] != part[2]]


def _named(row: PaddedProduct) -> str:
    parts = ", ".join(f"{part} {size} -> {whole}" for part, size, whole, _ in _odd(row))
    batch = f", {prod(row.sizes.batch)} times" if prod(row.sizes.batch) > 1 else ""
    return f"{row.row.instruction.name}: {parts}{batch}"
