"""How far results lie from the oracle's, and how far they may. Imports no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.operands import Float64

__all__ = ["BOUNDS", "ResultError", "bounds_of", "errors_of"]

BOUNDS: Mapping[str, float] = {"bfloat16": 2.0**-6, "float16": 2.0**-9, "float32": 2.0**-16}
"""The largest error that a dtype explains, as a share of the largest magnitude.

Operands are exact, so a right kernel in bfloat16 or float16 rounds its result
once, by at most 2^-9 or 2^-12 of the largest, and an intermediate such as the
softmax's weights a few times more: there is room for eight such roundings. For
float32 the sums count and not the last rounding: 2^-16 is 256 times it, room for
sums of some ten thousand terms. A wrong mask, scale or sum is off by far more.
"""

OF_NORM = 0.5
"""The share of the bound that the error of the norm may take: roundings average out."""


@dataclass(frozen=True, slots=True)
class ResultError:
    """How far one result lies from the oracle's.

    Attributes:
        name: The result; a gradient bears its operand's name.
        gradient: Whether it is one.
        largest: The largest difference as a share of the oracle's largest magnitude.
        norm: The norm of the difference as a share of the oracle's norm.
        bound: What ``largest`` may be; ``norm`` may be half of it.
    """

    name: str
    gradient: bool
    largest: float
    norm: float
    bound: float

    @property
    def is_wrong(self) -> bool:
        """Whether rounding cannot explain it. What is no number is wrong."""
        return not (self.largest <= self.bound and self.norm <= self.bound * OF_NORM)


def bounds_of(case: Case) -> float | Mapping[str, float]:
    """What a case's results may be off by: one bound, or one for each result and gradient."""
    own = getattr(case.family.oracle(), "bounds", None)
    return BOUNDS[case.dtype] if own is None else cast("Mapping[str, float]", own(case))


def errors_of(
    results: Mapping[str, NDArray[Any]],
    truth: Mapping[str, Float64],
    bound: float | Mapping[str, float],
    *,
    gradients: bool,
) -> list[ResultError]:
    """Compare every result that the oracle gives.

    A result of another shape, or with a value that is no number, is infinitely wrong.
    """
    found = []
    for name, right in truth.items():
        limit = bound if isinstance(bound, float) else bound[name]
        given = np.asarray(results[name]).astype(np.float64)
        largest = norm = float("inf")
        if given.shape == right.shape and np.isfinite(given).all():
            off = np.abs(given - right)
            largest = _share(float(off.max(initial=0)), float(np.abs(right).max(initial=0)))
            norm = _share(float(np.linalg.norm(off)), float(np.linalg.norm(right)))
        found.append(ResultError(name, gradients, largest, norm, limit))
    return found


def _share(part: float, whole: float) -> float:
    if whole:
        return part / whole
    return 0.0 if part == 0 else float("inf")
