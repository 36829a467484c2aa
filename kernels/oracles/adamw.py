"""AdamW in float64 (Loshchilov and Hutter, arXiv:1711.05101)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.errors import BOUNDS
from hloscope.kernels.operands import Float64, Operand, round_to

__all__ = [
    "DECAY",
    "EPSILON",
    "FIRST",
    "RATE",
    "SECOND",
    "bounds",
    "gradients",
    "operands",
    "results",
]

RATE, FIRST, SECOND, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01


def operands(case: Case) -> tuple[Operand, ...]:
    """A parameter, its gradient and its two moments ``[s, d]``, the step and the seed.

    The moments' values are those of bfloat16 whatever they are kept in, so that
    every implementation starts from the same ones.
    """
    shape = (case["s"], case["d"])
    state = "float32" if case.implementation.name == "float32" else "bfloat16"

    def mean(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
        return round_to(generator.standard_normal(shape), "bfloat16").astype(np.float64)

    def variance(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
        return round_to(generator.uniform(0.5, 1.5, shape), "bfloat16").astype(np.float64)

    def step(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
        return generator.integers(100, 1000, size=shape, dtype=np.int32)

    def seed(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
        return generator.integers(2**32, size=shape, dtype=np.uint32)

    return (
        Operand("parameter", shape, "float32", False, donated=True),
        Operand("gradient", shape, differentiable=False),
        Operand("mean", shape, state, False, mean, donated=True),
        Operand("variance", shape, state, False, variance, donated=True),
        Operand("step", (), "int32", False, step),
        Operand("seed", (2,), "uint32", False, seed),
    )


def results(
    case: Case,  # noqa: ARG001  (an oracle's signature)
    values: Mapping[str, NDArray[Any]],
) -> dict[str, Float64]:
    """The parameter and its moments after the step, which counts from 1."""
    step = int(values["step"])
    mean = FIRST * values["mean"] + (1 - FIRST) * values["gradient"]
    variance = SECOND * values["variance"] + (1 - SECOND) * values["gradient"] ** 2
    direction = mean / (1 - FIRST**step) / (np.sqrt(variance / (1 - SECOND**step)) + EPSILON)
    parameter = values["parameter"] * (1 - RATE * DECAY) - RATE * direction
    return {"parameter": parameter, "mean": mean, "variance": variance}


def gradients(
    case: Case,  # noqa: ARG001
    values: Mapping[str, NDArray[Any]],  # noqa: ARG001
    cotangent: Float64,  # noqa: ARG001
) -> dict[str, Float64]:
    """None: an update is not differentiated."""
    return {}


def bounds(case: Case) -> Mapping[str, float]:
    """Parameters are float32 everywhere; moments are what the implementation keeps them in."""
    state = "float32" if case.implementation.name == "float32" else "bfloat16"
    return {
        "parameter": BOUNDS["float32"],
        "mean": BOUNDS[state],
        "variance": BOUNDS[state],
    }
