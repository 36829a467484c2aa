"""The SSD recurrence in float64, token by token (Dao and Gu, arXiv:2405.21060)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.operands import Float64, Operand

__all__ = ["gradients", "operands", "results"]


def operands(case: Case) -> tuple[Operand, ...]:
    """Values ``[b, s, h, d]``, log decays ``[b, s, h]``, keys and queries ``[b, s, n]``.

    Decays are negative and float32, as models keep them; keys have variance ``1 / n``.
    """
    batch, length, width = case["b"], case["s"], case["n"]

    def decays(generator: np.random.Generator, shape: tuple[int, ...]) -> Float64:
        return -generator.uniform(0.01, 1.0, shape)

    def keys(generator: np.random.Generator, shape: tuple[int, ...]) -> Float64:
        drawn: Float64 = generator.standard_normal(shape) * width**-0.5
        return drawn

    return (
        Operand("value", (batch, length, case["h"], case["d"])),
        Operand("decay", (batch, length, case["h"]), "float32", draw=decays),
        Operand("key", (batch, length, width), draw=keys),
        Operand("query", (batch, length, width)),
    )


def results(case: Case, values: Mapping[str, NDArray[Any]]) -> dict[str, Float64]:
    """Each token's query times the state after it."""
    output = np.zeros_like(values["value"])
    state = _empty(case)
    for t in range(case["s"]):
        state = _after(values, state, t)
        output[:, t] = np.einsum("bn,bhnd->bhd", values["query"][:, t], state)
    return {"output": output}


def gradients(
    case: Case, values: Mapping[str, NDArray[Any]], cotangent: Float64
) -> dict[str, Float64]:
    """Gradients of ``sum(output * cotangent)``; every state is kept."""
    states = [_empty(case)]
    for t in range(case["s"]):
        states.append(_after(values, states[-1], t))
    found = {name: np.zeros_like(values[name]) for name in values}
    of_state = _empty(case)
    for t in reversed(range(case["s"])):
        key, query, given = values["key"][:, t], values["query"][:, t], cotangent[:, t]
        of_state = of_state + np.einsum("bn,bhd->bhnd", query, given)
        found["query"][:, t] = np.einsum("bhnd,bhd->bn", states[t + 1], given)
        found["key"][:, t] = np.einsum("bhnd,bhd->bn", of_state, values["value"][:, t])
        found["value"][:, t] = np.einsum("bhnd,bn->bhd", of_state, key)
        shrunk = np.exp(values["decay"][:, t])
        found["decay"][:, t] = np.einsum("bhnd,bhnd->bh", of_state, states[t]) * shrunk
        of_state = of_state * shrunk[..., None, None]
    return found


def _empty(case: Case) -> Float64:
    return np.zeros((case["b"], case["h"], case["n"], case["d"]))


def _after(values: Mapping[str, NDArray[Any]], state: Float64, t: int) -> Float64:
    """The state after token ``t``."""
    kept = np.exp(values["decay"][:, t])[..., None, None] * state
    after: Float64 = kept + np.einsum("bn,bhd->bhnd", values["key"][:, t], values["value"][:, t])
    return after
