"""The state-space recurrence of Mamba-2."""

from __future__ import annotations

from hloscope.chips import Chip, ChipKind
from hloscope.kernels.case import (
    Case,
    Family,
    Implementation,
    Setting,
    Size,
    divisor_for,
    needs_ampere,
)

__all__ = ["FAMILY"]


def _chunked(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001  (a Reason)
    return _in_chunks(case, 1)


def _in_chunks(case: Case, least: int, *, powers: bool = False) -> str | None:
    """Why a sequence is no whole chunks, with a chunk that the kernel takes and that is one."""
    length, chunk = case["s"], case.whole("chunk")
    if length % chunk == 0:
        return None
    found = divisor_for(length, chunk, least, powers=powers)
    way = (
        f"set chunk={found}, a divisor of {length}"
        if found
        else f"no chunk that the kernel takes divides {length}"
    )
    return f"{length} tokens are no whole chunks of {chunk}; {way}"


def _pallas_gpu(case: Case, chip: Chip | None) -> str | None:
    sizes = {
        "a chunk": case.whole("chunk"),
        "a head's width": case["d"],
        "the state's width": case["n"],
    }
    for name, size in sizes.items():
        if size < _LEAST or size & (size - 1):
            return f"Triton takes powers of two from {_LEAST} on, and {name} is {size}"
    return needs_ampere(chip) or _in_chunks(case, _LEAST, powers=True)


def _pallas_tpu(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001
    if case.whole("chunk") % _LEAST:
        return f"the kernel takes chunks in tiles of {_LEAST} tokens, not {case.whole('chunk')}"
    return _in_chunks(case, _LEAST)


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
