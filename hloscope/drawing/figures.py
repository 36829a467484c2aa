"""Numbers in pictures, each with as much of its basis as there is room for."""

from __future__ import annotations

from hloscope import units
from hloscope.passes.flops.totals import FlopTotal
from hloscope.pipeline.findings import Basis

__all__ = ["products_text"]


def products_text(total: FlopTotal) -> str:
    """FLOPs of products: a number, a bound, or that they are unknown; empty if there are none."""
    basis = total.basis
    if basis is Basis.UNKNOWN:
        return "FLOP unknown"
    if basis is Basis.BOUNDED:
        if total.low:
            return f"at least {units.flops(total.low)}"
        return f"at most {units.flops(total.high or 0)}"
    return units.flops(total.low) if total.low else ""
