"""SwiGLU in float64 (Shazeer, arXiv:2002.05202)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.operands import Float64, Operand

__all__ = ["gradients", "operands", "results"]


def operands(case: Case) -> tuple[Operand, ...]:
    """Rows ``[s, d]`` and weights ``[d, 2 f]``, the gate's half first, of variance ``1 / d``."""

    def weights(generator: np.random.Generator, shape: tuple[int, ...]) -> Float64:
        drawn: Float64 = generator.standard_normal(shape) * case["d"] ** -0.5
        return drawn

    return (
        Operand("rows", (case["s"], case["d"])),
        Operand("weights", (case["d"], 2 * case["f"]), draw=weights),
    )


def results(case: Case, values: Mapping[str, NDArray[Any]]) -> dict[str, Float64]:
    """``silu(rows gate) * (rows up)``."""
    gate, up, slope = _parts(case, values)
    return {"output": gate * slope * up}


def gradients(
    case: Case, values: Mapping[str, NDArray[Any]], cotangent: Float64
) -> dict[str, Float64]:
    """Gradients of ``sum(output * cotangent)``."""
    gate, up, slope = _parts(case, values)
    of_gate = cotangent * up * (slope + gate * slope * (1 - slope))
    both = np.concatenate((of_gate, cotangent * gate * slope), axis=-1)
    return {"rows": both @ values["weights"].T, "weights": values["rows"].T @ both}


def _parts(case: Case, values: Mapping[str, NDArray[Any]]) -> tuple[Float64, Float64, Float64]:
    """The gate's product, the other one, and the gate's logistic function."""
    both = values["rows"] @ values["weights"]
    gate, up = both[:, : case["f"]], both[:, case["f"] :]
    return gate, up, 1 / (1 + np.exp(-gate))
