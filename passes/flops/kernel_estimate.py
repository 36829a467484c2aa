"""Pallas kernels on TPU whose author recorded what they cost."""

from __future__ import annotations

from hloscope.ir import Instruction
from hloscope.ir.dtypes import is_floating
from hloscope.passes.flops.call_config import nested
from hloscope.passes.flops.counts import Count, Kind
from hloscope.pipeline.findings import Basis

__all__ = ["count_by_author"]


def count_by_author(instruction: Instruction) -> Count | None:
    """FLOPs from ``pallas_call(cost_estimate=...)``; ``None`` where there is no estimate.

    Authors do not agree on what to count (JAX's flash attention adds softmax
    and ignores the causal mask), so the figure is modelled, whatever it says.
    """
    config = nested(instruction.backend_config, "custom_call_config")
    estimate = nested(config, "cost_estimate")
    text = str(estimate.get("flops", ""))
    if not text.isdecimal():
        return None
    transcendentals = str(estimate.get("transcendentals", ""))
    floating = [o.shape.dtype for o in instruction.operands if is_floating(o.shape.dtype)]
    return Count(
        Kind.KERNEL,
        int(text),
        Basis.MODELLED,
        "kernel author's estimate",
        tuple(dict.fromkeys(floating)),
        transcendentals=int(transcendentals) if transcendentals.isdecimal() else 0,
    )
