"""The grouped product in float64, one group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.operands import Float64, Operand

__all__ = ["gradients", "operands", "results"]

MOST = 1.5
"""Rows of the largest group as a multiple of an even share."""


def operands(case: Case) -> tuple[Operand, ...]:
    """Rows ``[s, d]``, matrices ``[g, d, f]`` and the groups' sizes ``[g]``, which sum to ``s``."""
    rows, groups = case["s"], case["g"]

    def uneven(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int32]:
        (count,) = shape
        most = max(int(MOST * rows / count), -(-rows // count))
        sizes = np.full(count, rows // count)
        sizes[: rows % count] += 1
        # Rows move between pairs of groups, so that the sum stays.
        for _ in range(4 * count):
            giver, taker = generator.integers(count, size=2)
            moved = min(generator.integers(rows // count + 1), sizes[giver], most - sizes[taker])
            if giver != taker:
                sizes[giver] -= moved
                sizes[taker] += moved
        return sizes.astype(np.int32)

    return (
        Operand("rows", (rows, case["d"])),
        Operand("matrices", (groups, case["d"], case["f"])),
        Operand("sizes", (groups,), "int32", False, uneven),
    )


def results(case: Case, values: Mapping[str, NDArray[Any]]) -> dict[str, Float64]:
    """Each row times its group's matrix."""
    output = np.zeros((case["s"], case["f"]))
    for group, rows in _groups(values):
        output[rows] = values["rows"][rows] @ values["matrices"][group]
    return {"output": output}


def gradients(
    case: Case,  # noqa: ARG001  (an oracle's signature)
    values: Mapping[str, NDArray[Any]],
    cotangent: Float64,
) -> dict[str, Float64]:
    """Gradients of ``sum(output * cotangent)``."""
    found = {name: np.zeros_like(values[name]) for name in ("rows", "matrices")}
    for group, rows in _groups(values):
        found["rows"][rows] = cotangent[rows] @ values["matrices"][group].T
        found["matrices"][group] = values["rows"][rows].T @ cotangent[rows]
    return found


def _groups(values: Mapping[str, NDArray[Any]]) -> Iterator[tuple[int, slice]]:
    start = 0
    for group, size in enumerate(values["sizes"]):
        yield group, slice(start, start + int(size))
        start += int(size)
