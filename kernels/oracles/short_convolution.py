"""The masked short convolution in float64, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.operands import Float64, Operand

__all__ = ["gradients", "operands", "results"]


def operands(case: Case) -> tuple[Operand, ...]:
    """Rows ``[b, s, d]``, taps ``[t, d]``, the latest token's last, and a mask ``[b, s]``."""

    def mask(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        return generator.uniform(size=shape) * 100 >= case.whole("masked")

    return (
        Operand("rows", (case["b"], case["s"], case["d"])),
        Operand("taps", (case["t"], case["d"])),
        Operand("mask", (case["b"], case["s"]), "bool", False, mask),
    )


def results(case: Case, values: Mapping[str, NDArray[Any]]) -> dict[str, Float64]:
    """At each unmasked token the sum of taps times it and the unmasked ones before it."""
    output = np.zeros_like(values["rows"])
    for row, there, back, tap in _places(case, values):
        output[row, there[back:]] += values["rows"][row, there[: len(there) - back]] * tap
    return {"output": output}


def gradients(
    case: Case, values: Mapping[str, NDArray[Any]], cotangent: Float64
) -> dict[str, Float64]:
    """Gradients of ``sum(output * cotangent)``."""
    found = {name: np.zeros_like(values[name]) for name in ("rows", "taps")}
    for row, there, back, tap in _places(case, values):
        earlier, given = there[: len(there) - back], cotangent[row, there[back:]]
        found["rows"][row, earlier] += given * tap
        found["taps"][-1 - back] += np.sum(given * values["rows"][row, earlier], axis=0)
    return found


def _places(
    case: Case, values: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[int, NDArray[np.intp], int, Float64]]:
    """Each row with its unmasked places, and how far back each tap reaches among them."""
    for row in range(case["b"]):
        there = np.flatnonzero(values["mask"][row])
        for back in range(min(case["t"], len(there))):
            yield row, there, back, values["taps"][-1 - back]
