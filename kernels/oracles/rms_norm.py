"""Root mean square normalization in float64 (Zhang and Sennrich, arXiv:1910.07467)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.operands import Float64, Operand

__all__ = ["EPSILON", "gradients", "operands", "results"]

EPSILON = 1e-5


def operands(case: Case) -> tuple[Operand, ...]:
    """Rows ``[s, d]`` and a scale ``[d]``."""
    return Operand("rows", (case["s"], case["d"])), Operand("scale", (case["d"],))


def results(
    case: Case,  # noqa: ARG001  (an oracle's signature)
    values: Mapping[str, NDArray[Any]],
) -> dict[str, Float64]:
    """``rows / sqrt(mean(rows ** 2) + epsilon) * scale``."""
    return {"output": values["rows"] * _inverse(values["rows"]) * values["scale"]}


def gradients(
    case: Case, values: Mapping[str, NDArray[Any]], cotangent: Float64
) -> dict[str, Float64]:
    """Gradients of ``sum(output * cotangent)``."""
    rows, inverse = values["rows"], _inverse(values["rows"])
    scaled = cotangent * values["scale"]
    along = np.sum(scaled * rows, axis=-1, keepdims=True) / case["d"]
    return {
        "rows": inverse * (scaled - rows * inverse**2 * along),
        "scale": np.sum(cotangent * rows * inverse, axis=0),
    }


def _inverse(rows: NDArray[Any]) -> Float64:
    inverse: Float64 = 1 / np.sqrt(np.mean(rows**2, axis=-1, keepdims=True) + EPSILON)
    return inverse
