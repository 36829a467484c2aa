"""Implementations of attention.

Pallas kernels are imported where they are used: JAX moves and removes them, and
one that is gone should cost no other implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from hloscope.kernels.case import Case

__all__ = ["implement"]

Arrays = Mapping[str, jax.Array]


def implement(case: Case, *, interpret: bool) -> Callable[[Arrays], dict[str, jax.Array]]:
    """The case's function from operands to results.

    Args:
        case: What to compute.
        interpret: Whether Pallas kernels run interpreted, for a device that they
            are not written for.
    """

    def attend(arrays: Arrays) -> dict[str, jax.Array]:
        rows = _pad(case, arrays)
        name = case.implementation.name
        if name == "reference":
            output = _reference(case, rows)
        elif name in ("xla", "cudnn"):
            output = _library(case, rows)
        elif name == "flash_gpu":
            output = _triton(case, rows, interpret=interpret)
        elif name == "flash_tpu":
            output = _mosaic(case, rows)
        elif name.startswith("tokamax_"):
            output = _tokamax(case, rows)
        else:
            output = _splash(case, rows)
        return {"output": output[:, : case["s"]]}

    return attend


def _pad(case: Case, arrays: Arrays) -> dict[str, jax.Array]:
    """Rows of a whole multiple of tokens; ``segments`` tell padding (0) from documents (1 up)."""
    rows = dict(arrays)
    if "segments" in rows:
        rows["segments"] += 1
    multiple = case.whole("pad")
    missing = -case["s"] % multiple if multiple else 0
    if not missing:
        return rows
    if "segments" not in rows:
        rows["segments"] = jnp.ones((case["b"], case["s"]), jnp.int32)
    for name, array in rows.items():
        widths = ((0, 0), (0, missing), *((0, 0),) * (array.ndim - 2))
        rows[name] = jnp.pad(array, widths)
    return rows


def _mask(case: Case, rows: Arrays, *, everything: bool) -> jax.Array | None:
    """Which key each query sees, ``[b or 1, 1, queries, keys]``; ``None`` if all.

    Args:
        case: Says what is masked.
        rows: Padded operands.
        everything: Also what ``jax.nn`` takes as words, causality and windows.
    """
    place = jnp.arange(rows["query"].shape[1])
    ahead = place[None, :] - place[:, None]
    mask = None
    if everything and case.whole("causal"):
        mask = (ahead <= 0)[None, None]
    if everything and case.whole("window"):
        near = (jnp.abs(ahead) < case.whole("window"))[None, None]
        mask = near if mask is None else mask & near
    if "segments" in rows:
        ids = rows["segments"]
        same = (ids[:, :, None] == ids[:, None, :])[:, None]
        mask = same if mask is None else mask & same
    return mask


def _reference(case: Case, rows: Arrays) -> jax.Array:
    query, key, value = rows["query"], rows["key"], rows["value"]
    batch, length = query.shape[:2]
    grouped = query.reshape(batch, length, case["k"], -1, case["d"])
    logits = jnp.einsum("bqkgd,bskd->bkgqs", grouped, key, preferred_element_type=jnp.float32)
    logits *= case["d"] ** -0.5
    cap = case.settings["softcap"]
    if cap:
        logits = cap * jnp.tanh(logits / cap)
    mask = _mask(case, rows, everything=True)
    if mask is not None:
        logits = jnp.where(mask[:, :, None], logits, -jnp.inf)
    weights = jax.nn.softmax(logits).astype(value.dtype)
    output = jnp.einsum("bkgqs,bskd->bqkgd", weights, value)
    return output.reshape(query.shape)


def _library(case: Case, rows: Arrays) -> jax.Array:
    window = case.whole("window")
    causal = bool(case.whole("causal"))
    sides = None if not window else (window - 1, 0 if causal else window - 1)
    attended: jax.Array = jax.nn.dot_product_attention(
        rows["query"],
        rows["key"],
        rows["value"],
        mask=_mask(case, rows, everything=False),
        is_causal=causal,
        local_window_size=sides,
        implementation="cudnn" if case.implementation.name == "cudnn" else "xla",
    )
    return attended


def _repeated(case: Case, rows: Arrays) -> tuple[jax.Array, jax.Array, jax.Array]:
    group = case["h"] // case["k"]
    key, value = (jnp.repeat(rows[name], group, axis=2) for name in ("key", "value"))
    return rows["query"], key, value


def _triton(case: Case, rows: Arrays, *, interpret: bool) -> jax.Array:
    from jax.experimental.pallas.ops.gpu import attention as triton

    query, key, value = _repeated(case, rows)
    attended: jax.Array = triton.mha(
        query,
        key,
        value,
        rows.get("segments"),
        sm_scale=case["d"] ** -0.5,
        causal=bool(case.whole("causal")),
        interpret=interpret,
    )
    return attended


def _heads_first(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(array.swapaxes(1, 2) for array in arrays)


def _mosaic(case: Case, rows: Arrays) -> jax.Array:
    from jax.experimental.pallas.ops.tpu import flash_attention as mosaic

    query, key, value = _heads_first(*_repeated(case, rows))
    ids = rows.get("segments")
    attended: jax.Array = mosaic.flash_attention(
        query,
        key,
        value,
        segment_ids=None if ids is None else mosaic.SegmentIds(ids, ids),
        causal=bool(case.whole("causal")),
        sm_scale=case["d"] ** -0.5,
    )
    return attended.swapaxes(1, 2)


def _tokamax(case: Case, rows: Arrays) -> jax.Array:
    from hloscope.kernels.tokamax_kernels import attend

    mask = _mask(case, rows, everything=False)
    return attend(case, rows["query"], rows["key"], rows["value"], mask)


def _splash(case: Case, rows: Arrays) -> jax.Array:
    from jax.experimental.pallas.ops.tpu import splash_attention as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_mask as splash_mask,
    )

    query, key, value = _heads_first(rows["query"], rows["key"], rows["value"])
    length = query.shape[2]
    window, causal = case.whole("window"), bool(case.whole("causal"))
    if window:
        right = 0 if causal else window - 1
        one: splash.Mask = splash.LocalMask((length, length), (window - 1, right), 0)
    elif causal:
        one = splash.CausalMask((length, length))
    else:
        one = splash.FullMask((length, length))
    kernel = splash.make_splash_mha(
        splash_mask.MultiHeadMask([one] * case["h"]),
        head_shards=1,
        q_seq_shards=1,
        attn_logits_soft_cap=case.settings["softcap"] or None,
    )
    ids = rows.get("segments")
    segments = None if ids is None else splash.SegmentIds(ids, ids)
    # The kernel leaves the scale of the logits to its caller.
    scaled = query * jnp.asarray(case["d"] ** -0.5, query.dtype)
    attended: jax.Array = jax.vmap(kernel)(scaled, key, value, segments)
    return attended.swapaxes(1, 2)
