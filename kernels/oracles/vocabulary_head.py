"""A vocabulary head and its cross entropy in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.errors import BOUNDS
from hloscope.kernels.operands import Float64, Operand

__all__ = ["bounds", "gradients", "operands", "results"]

_PIECE = 256  # tokens whose logits are held at once


def operands(case: Case) -> tuple[Operand, ...]:
    """Hidden states ``[s, d]``, a table ``[d, v]`` of variance ``1 / d``, labels ``[s]``."""

    def table(generator: np.random.Generator, shape: tuple[int, ...]) -> Float64:
        drawn: Float64 = generator.standard_normal(shape) * case["d"] ** -0.5
        return drawn

    def labels(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
        return generator.integers(case["v"], size=shape, dtype=np.int32)

    return (
        Operand("hidden", (case["s"], case["d"])),
        Operand("table", (case["d"], case["v"]), draw=table),
        Operand("labels", (case["s"],), "int32", False, labels),
    )


def results(case: Case, values: Mapping[str, NDArray[Any]]) -> dict[str, Float64]:
    """The mean over tokens of ``logsumexp(logits) - logits[label]``."""
    total = 0.0
    for tokens in _pieces(case):
        logits = values["hidden"][tokens] @ values["table"]
        most = logits.max(axis=-1)
        sums = most + np.log(np.exp(logits - most[:, None]).sum(axis=-1))
        total += float(np.sum(sums - logits[np.arange(len(logits)), values["labels"][tokens]]))
    return {"loss": np.asarray(total / case["s"])}


def gradients(
    case: Case, values: Mapping[str, NDArray[Any]], cotangent: Float64
) -> dict[str, Float64]:
    """Gradients of ``loss * cotangent``."""
    found = {name: np.zeros_like(values[name]) for name in ("hidden", "table")}
    for tokens in _pieces(case):
        hidden = values["hidden"][tokens]
        logits = hidden @ values["table"]
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        shares[np.arange(len(shares)), values["labels"][tokens]] -= 1
        shares *= cotangent / case["s"]
        found["hidden"][tokens] = shares @ values["table"].T
        found["table"] += hidden.T @ shares
    return found


def bounds(case: Case) -> Mapping[str, float]:
    """The loss is float32 whatever the operands are; gradients have their dtype."""
    own = BOUNDS[case.dtype]
    return {"loss": BOUNDS["float32"], "hidden": own, "table": own}


def _pieces(case: Case) -> list[slice]:
    return [slice(start, start + _PIECE) for start in range(0, case["s"], _PIECE)]
