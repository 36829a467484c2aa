"""Root mean square normalization of rows."""

from __future__ import annotations

from hloscope.chips import Chip, ChipKind
from hloscope.kernels.case import Case, Family, Implementation, Size, too_old

__all__ = ["FAMILY"]


def _ampere(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001  (a Reason)
    return too_old(chip, (8, 0), "Triton in XLA")


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
            refuses=_ampere,
        ),
    ),
    outputs=("output",),
)
