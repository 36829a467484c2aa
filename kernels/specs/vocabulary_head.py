"""The head of a language model with its loss."""

from __future__ import annotations

from hloscope.chips import Chip
from hloscope.kernels.case import Case, Family, Implementation, Setting, Size, divisor_for

__all__ = ["FAMILY"]


def _chunked(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001  (a Reason)
    length, chunks = case["s"], case.whole("chunks")
    if length % chunks:
        way = f"set chunks={divisor_for(length, chunks)}, a divisor of {length}"
        return f"{length} tokens do not split into {chunks} chunks; {way}"
    return None


FAMILY = Family(
    name="vocabulary_head",
    title="logits of [tokens, width] over a vocabulary, and their mean cross entropy",
    sizes=(
        Size("s", "tokens", 2048),
        Size("d", "width", 512),
        Size("v", "vocabulary", 32768),
    ),
    settings=(
        Setting("chunks", "pieces that the chunked forms take the tokens in", default=4, least=1),
    ),
    implementations=(
        Implementation("full", "all logits at once, summed in float32"),
        Implementation("full_float32", "all logits at once, operands converted to float32"),
        Implementation(
            "chunked", "a loop over pieces, recomputed for the gradients", refuses=_chunked
        ),
        Implementation(
            "chunked_float32", "the same, operands converted to float32", refuses=_chunked
        ),
    ),
    outputs=("loss",),
)
