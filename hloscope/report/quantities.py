"""A quantity as text: its value in human units, and its basis when that is not exact."""

from __future__ import annotations

from collections.abc import Callable

from hloscope import units
from hloscope.pipeline.findings import Basis, Quantity, Unit

__all__ = ["basis_text", "quantity_text", "value_text"]

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
    text, basis = value_text(quantity), basis_text(quantity)
    return f"{text} ({basis})" if basis else text


def basis_text(quantity: Quantity) -> str:
    """How the value is known; empty where it is exact, or not known at all."""
    if quantity.basis in (Basis.EXACT, Basis.UNKNOWN):
        return ""
    basis = quantity.basis.value
    return f"{basis}: {quantity.model}" if quantity.model else basis
