"""Root mean square normalization of rows."""

from __future__ import annotations

from hloscope.chips import ChipKind
from hloscope.kernels.case import Family, Implementation, Size, needs_ampere

__all__ = ["FAMILY"]

FAMILY = Family(
    name="rms_norm",
    title="rows [tokens, width] over their root mean square, times a scale",
    sizes=(Size("s", "rows", 4096), Size("d", "width", 1024)),
    settings=(),
    implementations=(
        Implementation("reference", "written out, in float32"),
        Implementation("narrow", "written out, in the operands' dtype but for the mean"),
        Implementation(
            "pallas_gpu",
            "JAX's Pallas kernel for GPUs (Triton), with a bias of zero",
            kinds=frozenset({ChipKind.GPU}),
            interpreted=True,
            refuses=lambda _, chip: needs_ampere(chip),
        ),
    ),
    outputs=("output",),
)
