"""Products of groups of rows with a matrix each, as in a mixture of experts."""

from __future__ import annotations

from hloscope.chips import Chip, ChipKind
from hloscope.kernels.case import (
    Case,
    Family,
    Implementation,
    Setting,
    Size,
    needs_ampere,
    needs_hopper,
)

__all__ = ["FAMILY"]

_TILE = 128  # rows of a tile of megablox


def _megablox(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001  (a Reason)
    if case["s"] % _TILE:
        return f"{case['s']} rows are no whole tiles of {_TILE}"
    return None


FAMILY = Family(
    name="grouped_matmul",
    title="rows sorted by group [tokens, in], each group times its own [in, out]",
    sizes=(
        Size("s", "rows of all groups", 4096),
        Size("g", "groups", 8),
        Size("d", "width in", 512),
        Size("f", "width out", 1024),
    ),
    settings=(
        Setting(
            "capacity",
            "rows a group has room for in the capacity form, as a multiple of an even share; "
            "groups have up to 1.5, and what overflows is dropped",
            whole=False,
            default=1.5,
        ),
    ),
    implementations=(
        Implementation("dense", "every group's product with every row, masked"),
        Implementation("capacity", "rows scattered to buffers of fixed size, one batched product"),
        Implementation("ragged", "jax.lax.ragged_dot"),
        Implementation(
            "megablox",
            "JAX's Pallas kernel for TPUs (Mosaic), tiles of 128",
            kinds=frozenset({ChipKind.TPU}),
            interpreted=True,
            refuses=_megablox,
            dtypes=("bfloat16", "float32"),
        ),
        Implementation(
            "tokamax_triton",
            "tokamax.ragged_dot by its Pallas kernel for GPUs (Triton)",
            kinds=frozenset({ChipKind.GPU}),
            refuses=lambda _, chip: needs_ampere(chip),
            package="tokamax",
        ),
        Implementation(
            "tokamax_mosaic_gpu",
            "tokamax.ragged_dot by its Pallas kernel for GPUs from Hopper on (Mosaic GPU)",
            kinds=frozenset({ChipKind.GPU}),
            refuses=lambda _, chip: needs_hopper(chip),
            dtypes=("bfloat16", "float16"),
            package="tokamax",
        ),
        Implementation(
            "tokamax_mosaic_tpu",
            "tokamax.ragged_dot by its Pallas kernel for TPUs (Mosaic)",
            kinds=frozenset({ChipKind.TPU}),
            dtypes=("bfloat16", "float32"),
            package="tokamax",
        ),
    ),
    outputs=("output",),
)
