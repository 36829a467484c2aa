"""Attention in float64, one head at a time so that long rows fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hloscope.kernels.case import Case
from hloscope.kernels.operands import Float64, Operand

__all__ = ["gradients", "operands", "results"]


def operands(case: Case) -> tuple[Operand, ...]:
    """Query ``[b, s, h, d]``, key and value ``[b, s, k, d]``, and with segments ``[b, s]``."""
    queries = (case["b"], case["s"], case["h"], case["d"])
    keys = (case["b"], case["s"], case["k"], case["d"])
    found = (Operand("query", queries), Operand("key", keys), Operand("value", keys))
    if not case.whole("segments"):
        return found

    def packed(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int32]:
        batch, length = shape
        rows = np.zeros(shape, np.int32)
        for row in range(batch):
            ends = generator.choice(
                np.arange(1, max(length, 2)),
                size=min(case.whole("segments"), length) - 1,
                replace=False,
            )
            rows[row, ends] = 1
        return np.cumsum(rows, axis=1, dtype=np.int32)

    return (*found, Operand("segments", (case["b"], case["s"]), "int32", False, packed))


def results(case: Case, values: Mapping[str, NDArray[Any]]) -> dict[str, Float64]:
    """``softmax(q k' / sqrt(d)) v`` under the case's masks."""
    output = np.zeros_like(values["query"])
    for batch, head, keys in _heads(case):
        weights, _, _ = _weights(case, values, batch, head, keys)
        output[batch, :, head] = weights @ values["value"][batch, :, keys]
    return {"output": output}


def gradients(
    case: Case, values: Mapping[str, NDArray[Any]], cotangent: Float64
) -> dict[str, Float64]:
    """Gradients of ``sum(output * cotangent)``."""
    found = {name: np.zeros_like(values[name]) for name in ("query", "key", "value")}
    scale = case["d"] ** -0.5
    for batch, head, keys in _heads(case):
        weights, slope, _ = _weights(case, values, batch, head, keys)
        query = values["query"][batch, :, head]
        key, value = values["key"][batch, :, keys], values["value"][batch, :, keys]
        given = cotangent[batch, :, head]
        of_weights = given @ value.T
        inner = np.sum(of_weights * weights, axis=-1, keepdims=True)
        of_logits = weights * (of_weights - inner) * slope * scale
        found["value"][batch, :, keys] += weights.T @ given
        found["query"][batch, :, head] = of_logits @ key
        found["key"][batch, :, keys] += of_logits.T @ query
    return found


def _heads(case: Case) -> Iterator[tuple[int, int, int]]:
    """Batch, head of the queries, head of the keys that it uses."""
    group = case["h"] // case["k"]
    for batch in range(case["b"]):
        for head in range(case["h"]):
            yield batch, head, head // group


def _weights(
    case: Case, values: Mapping[str, NDArray[Any]], batch: int, head: int, keys: int
) -> tuple[Float64, Float64 | float, NDArray[np.bool_]]:
    """The softmax, the slope of the softcap, and which pairs are seen."""
    query, key = values["query"][batch, :, head], values["key"][batch, :, keys]
    logits: Float64 = query @ key.T * case["d"] ** -0.5
    slope: Float64 | float = 1.0
    cap = case.settings["softcap"]
    if cap:
        bent = np.tanh(logits / cap)
        logits, slope = cap * bent, 1 - bent**2
    seen = _seen(case, values.get("segments"), batch)
    logits = np.where(seen, logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True), slope, seen


def _seen(case: Case, segments: NDArray[Any] | None, batch: int) -> NDArray[np.bool_]:
    place = np.arange(case["s"])
    ahead = place[None, :] - place[:, None]
    seen: NDArray[np.bool_] = np.ones(ahead.shape, bool)
    if case.whole("causal"):
        seen &= ahead <= 0
    if case.whole("window"):
        seen &= np.abs(ahead) < case.whole("window")
    if segments is not None:
        seen &= segments[batch][:, None] == segments[batch][None, :]
    return seen
