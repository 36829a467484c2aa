"""The state-space recurrence of Mamba-2."""

from __future__ import annotations

from hloscope.chips import Chip, ChipKind
from hloscope.kernels.case import Case, Family, Implementation, Setting, Size, too_old

__all__ = ["FAMILY"]


def _chunked(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001  (a Reason)
    if case["s"] % case.whole("chunk"):
        return f"{case['s']} tokens are no whole chunks of {case.whole('chunk')}"
    return None


def _pallas_gpu(case: Case, chip: Chip | None) -> str | None:
    sizes = {
        "a chunk": case.whole("chunk"),
        "a head's width": case["d"],
        "the state's width": case["n"],
    }
    for name, size in sizes.items():
        if size < _LEAST or size & (size - 1):
            return f"Triton takes powers of two from {_LEAST} on, and {name} is {size}"
    return too_old(chip, (8, 0), "Triton in XLA") or _chunked(case, chip)


def _pallas_tpu(case: Case, chip: Chip | None) -> str | None:
    if case.whole("chunk") % _LEAST:
        return f"the kernel takes chunks in tiles of {_LEAST} tokens, not {case.whole('chunk')}"
    return _chunked(case, chip)


_LEAST = 16  # rows of a tile of bfloat16 on TPUs; the least that Triton multiplies


FAMILY = Family(
    name="ssd_scan",
    title="state = exp(decay) state + key value', output = query state, along a sequence",
    sizes=(
        Size("b", "batch", 4),
        Size("s", "sequence length", 1024),
        Size("h", "heads", 8),
        Size("d", "width of a head", 64),
        Size("n", "width of the state, of keys and queries", 64),
    ),
    settings=(Setting("chunk", "tokens of a chunk in the chunked forms", default=128, least=1),),
    implementations=(
        Implementation("sequential", "a loop over tokens"),
        Implementation(
            "chunked", "products inside chunks and a loop over chunks, in XLA", refuses=_chunked
        ),
        Implementation(
            "pallas_gpu",
            "a Pallas kernel for GPUs (Triton): a program for each head, its state in registers",
            kinds=frozenset({ChipKind.GPU}),
            interpreted=True,
            refuses=_pallas_gpu,
        ),
        Implementation(
            "pallas_tpu",
            "a Pallas kernel for TPUs (Mosaic): chunks in order, the states of all heads in VMEM",
            kinds=frozenset({ChipKind.TPU}),
            interpreted=True,
            refuses=_pallas_tpu,
            dtypes=("bfloat16", "float32"),
        ),
    ),
    outputs=("output",),
)
