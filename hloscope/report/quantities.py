"""A quantity as text: its value in human units, and its basis when that is not exact."""

from __future__ import annotations

from collections.abc import Callable

from hloscope import units
from hloscope.pipeline.findings import Basis, Quantity, Unit

__all__ = ["quantity_text", "value_text"]

_WRITERS: dict[Unit, Callable[[float], str]] = {
    Unit.BYTES: units.byte_size,
    Unit.FLOPS: units.flops,
    Unit.SECONDS: units.seconds,
    Unit.COUNT: units.count,
    Unit.RATIO: units.ratio,
    Unit.SHARE: units.share,
}


def value_text(quantity: Quantity) -> str:
    """The value with its unit; an unknown one says so."""
    if quantity.value is None:
        return "unknown"
    return _WRITERS[quantity.unit](quantity.value)


def quantity_text(quantity: Quantity) -> str:
    """The value with its unit, and in brackets how it is known unless exactly."""
    text = value_text(quantity)
    if quantity.basis in (Basis.EXACT, Basis.UNKNOWN):
        return text
    basis = quantity.basis.value
    return f"{text} ({basis}: {quantity.model})" if quantity.model else f"{text} ({basis})"
