import jax
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from hloscope.models.blocks.attention import attend


def _attend_in_float64(query, key, value, *, causal):
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    out = np.zeros_like(query)
    shared = query.shape[2] // key.shape[2]
    for sample in range(query.shape[0]):
        for head in range(query.shape[2]):
            q = query[sample, :, head]
            k, v = (x[sample, :, head // shared] for x in (key, value))
            weights = np.exp(q @ k.T / np.sqrt(q.shape[1]))
            if causal:
                weights = np.tril(weights)
            out[sample, :, head] = weights / weights.sum(1, keepdims=True) @ v
    return out


@pytest.mark.parametrize("route", ["xla", "reference"])
@pytest.mark.parametrize(("causal", "keys"), [(True, 7), (False, 5)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 4e-2)])
def test_both_attention_routes_agree_with_float64(route, causal, keys, dtype, tolerance):
    parts = jax.random.split(jax.random.key(1), 3)
    query = jax.random.normal(parts[0], (2, 7, 3, 4), dtype)
    key = jax.random.normal(parts[1], (2, keys, 3, 4), dtype)
    value = jax.random.normal(parts[2], (2, keys, 3, 4), dtype)
    got = attend(query, key, value, causal=causal, route=route)
    assert got.dtype == dtype
    expected = _attend_in_float64(query, key, value, causal=causal)
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, atol=tolerance)


@pytest.mark.parametrize("route", ["xla", "reference", "flash"])
def test_heads_may_share_keys_and_values(route):
    parts = jax.random.split(jax.random.key(3), 3)
    query = jax.random.normal(parts[0], (2, 9, 6, 4))
    key = jax.random.normal(parts[1], (2, 9, 2, 4))
    value = jax.random.normal(parts[2], (2, 9, 2, 4))
    with pltpu.force_tpu_interpret_mode():
        got = attend(query, key, value, causal=True, route=route)
    expected = _attend_in_float64(query, key, value, causal=True)
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, atol=1e-5)


@pytest.mark.parametrize(("causal", "keys"), [(True, 130), (False, 77), (False, 130)])
def test_flash_attention_over_padded_sequences_agrees_with_float64(causal, keys):
    parts = jax.random.split(jax.random.key(2), 3)
    query = jax.random.normal(parts[0], (1, 130, 2, 16))
    key = jax.random.normal(parts[1], (1, keys, 2, 16))
    value = jax.random.normal(parts[2], (1, keys, 2, 16))
    with pltpu.force_tpu_interpret_mode():
        got = attend(query, key, value, causal=causal, route="flash")
    expected = _attend_in_float64(query, key, value, causal=causal)
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, atol=1e-5)
