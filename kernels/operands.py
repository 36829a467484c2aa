"""The arrays that a kernel is run on, drawn once and rounded to its dtype. Imports no JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["CASE_DTYPE", "Float64", "Operand", "draw", "in_float64", "round_to"]

CASE_DTYPE = "case"
"""Stands for the dtype that the case asks for."""

Float64 = NDArray[np.float64]

Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]


def normal(generator: np.random.Generator, shape: tuple[int, ...]) -> Float64:
    """Values of mean 0 and variance 1."""
    return generator.standard_normal(shape)


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument of a kernel.

    Attributes:
        name: Its keyword.
        shape: Its dimensions.
        dtype: What it is rounded to; ``CASE_DTYPE`` for the case's own.
        differentiable: Whether a gradient is asked for.
        draw: Makes its values.
        donated: Whether a step gives it up for the result of its name, which then has
            its memory, as an optimizer's state does; such a result has its shape and dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = CASE_DTYPE
    differentiable: bool = True
    draw: Draw = normal
    donated: bool = False

    def dtype_in(self, case_dtype: str) -> str:
        """Its dtype in a case of that dtype."""
        return case_dtype if self.dtype == CASE_DTYPE else self.dtype


def draw(
    operands: Sequence[Operand], case_dtype: str, generator: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Values of every operand, rounded: what every implementation and the oracle get."""
    return {
        one.name: round_to(one.draw(generator, one.shape), one.dtype_in(case_dtype))
        for one in operands
    }


def round_to(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Values in a dtype by its name, ``bfloat16`` included; to the nearest, ties to even."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return values.astype(kind)


def in_float64(values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Floating-point values exactly, in float64; whole numbers as they are."""
    return {
        name: value if value.dtype.kind in "iub" else value.astype(np.float64)
        for name, value in values.items()
    }
