"""Softmax attention: its shapes, its masks, and who takes which."""

from __future__ import annotations

from collections.abc import Mapping

from hloscope.chips import Chip, ChipKind
from hloscope.kernels.case import (
    Case,
    Direction,
    Family,
    Implementation,
    Setting,
    Size,
    needs_ampere,
    needs_hopper,
)

__all__ = ["FAMILY"]

_BLOCK = 128  # rows of a tile of JAX's flash kernels


def _padded_length(case: Case) -> int:
    multiple = case.whole("pad") or 1
    return -(-case["s"] // multiple) * multiple


def _unshared(sizes: Mapping[str, int]) -> str | None:
    heads, keys = sizes["h"], sizes["k"]
    if heads % keys:
        return f"{heads} heads cannot share {keys} heads of keys: k must divide h"
    return None


def _xla(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001  (a Reason)
    if case.settings["softcap"]:
        return "jax.nn.dot_product_attention has no softcap"
    return None


def _cudnn(case: Case, chip: Chip | None) -> str | None:
    old = needs_ampere(chip, "cuDNN's fused attention")
    if old is not None:
        return old
    if case["d"] % 8 or case["d"] > 128:
        return "cuDNN takes head widths that are multiples of 8, up to 128"
    if case.whole("window") and not case.whole("causal"):
        return "jax.nn takes windows through cuDNN with causal=1 only"
    if case.whole("window") and (case.whole("segments") or case.whole("pad")):
        return "cuDNN takes a window or a mask, not both"
    return _xla(case, chip)


def _flash(case: Case) -> str | None:
    if case.whole("window"):
        return "the kernel has no windows"
    if case.settings["softcap"]:
        return "the kernel has no softcap"
    return None


def _flash_gpu(case: Case, chip: Chip | None) -> str | None:
    length = _padded_length(case)
    if length % min(_BLOCK, length) or (length < _BLOCK and length & (length - 1)):
        return f"{length} rows are no whole tiles of {_BLOCK}; set pad={_BLOCK}"
    if case["d"] & (case["d"] - 1):
        return "Triton takes head widths that are powers of two"
    return needs_ampere(chip) or _flash(case)


def _in_tiles(case: Case) -> str | None:
    length = _padded_length(case)
    if length % _BLOCK:
        return f"{length} rows are no whole tiles of {_BLOCK}; set pad={_BLOCK}"
    return None


def _flash_tpu(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001
    return _in_tiles(case) or _flash(case)


def _splash(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001
    return _in_tiles(case)


_HALF = ("bfloat16", "float16")

FAMILY = Family(
    name="attention",
    title="softmax attention over [batch, sequence, heads, width]",
    sizes=(
        Size("b", "batch", 4),
        Size("s", "sequence length", 1024),
        Size("h", "heads", 8),
        Size("k", "heads of keys and values, which groups of heads share", like="h"),
        Size("d", "width of a head", 64),
    ),
    settings=(
        Setting("causal", "1 for queries that see keys up to their own place only", most=1),
        Setting("window", "keys on each side that a query sees, itself included; 0 for all"),
        Setting("segments", "documents packed into a row, each of which sees itself only"),
        Setting("pad", "pads the row to a multiple of this, with masked keys; 0 for no padding"),
        Setting("softcap", "bounds logits by softcap * tanh(logits / softcap)", whole=False),
    ),
    implementations=(
        Implementation("reference", "two einsums around a float32 softmax, all written out"),
        Implementation("xla", 'jax.nn.dot_product_attention, implementation="xla"', refuses=_xla),
        Implementation(
            "cudnn",
            'jax.nn.dot_product_attention, implementation="cudnn"',
            kinds=frozenset({ChipKind.GPU}),
            refuses=_cudnn,
            dtypes=_HALF,
        ),
        Implementation(
            "flash_gpu",
            "JAX's Pallas kernel for GPUs (Triton); shared keys are repeated for it",
            kinds=frozenset({ChipKind.GPU}),
            interpreted=True,
            refuses=_flash_gpu,
        ),
        Implementation(
            "flash_tpu",
            "JAX's Pallas kernel for TPUs (Mosaic); shared keys are repeated for it",
            kinds=frozenset({ChipKind.TPU}),
            interpreted=True,
            refuses=_flash_tpu,
            dtypes=("bfloat16", "float32"),
        ),
        Implementation(
            "splash_tpu",
            "JAX's sparse Pallas kernel for TPUs (Mosaic), which skips masked tiles",
            kinds=frozenset({ChipKind.TPU}),
            interpreted=True,
            refuses=_splash,
            dtypes=("bfloat16", "float32"),
        ),
        Implementation(
            "tokamax_chunked",
            "tokamax, in XLA by tiles of scores",
            package="tokamax",
        ),
        Implementation(
            "tokamax_triton",
            "tokamax's Pallas kernel for GPUs (Triton)",
            kinds=frozenset({ChipKind.GPU}),
            refuses=lambda _, chip: needs_ampere(chip),
            package="tokamax",
        ),
        Implementation(
            "tokamax_mosaic_gpu",
            "tokamax's Pallas kernel for GPUs from Hopper on (Mosaic GPU)",
            kinds=frozenset({ChipKind.GPU}),
            refuses=lambda _, chip: needs_hopper(chip),
            dtypes=_HALF,
            package="tokamax",
        ),
        Implementation(
            "tokamax_mosaic_tpu",
            "tokamax's Pallas kernel for TPUs (Mosaic), a splash attention",
            kinds=frozenset({ChipKind.TPU}),
            dtypes=("bfloat16", "float32"),
            package="tokamax",
        ),
    ),
    outputs=("output",),
    directions=(Direction.FORWARD, Direction.BACKWARD),
    refuses=_unshared,
)
