"""The state-space recurrence of Mamba-2."""

from __future__ import annotations

from hloscope.chips import Chip
from hloscope.kernels.case import Case, Family, Implementation, Setting, Size

__all__ = ["FAMILY"]


def _chunked(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001  (a Reason)
    if case["s"] % max(case.whole("chunk"), 1):
        return f"{case['s']} tokens are no whole chunks of {case.whole('chunk')}"
    return None


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
    settings=(Setting("chunk", "tokens of a chunk in the chunked form", default=128),),
    implementations=(
        Implementation("sequential", "a loop over tokens"),
        Implementation(
            "chunked", "products inside chunks and a loop over chunks, in XLA", refuses=_chunked
        ),
    ),
    outputs=("output",),
)
