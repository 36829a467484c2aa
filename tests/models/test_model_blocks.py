import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hloscope.models.blocks import attend, grid_positions, rotate, sinusoidal_embedding


def _attend_in_float64(query, key, value, *, causal):
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    out = np.zeros_like(query)
    for sample in range(query.shape[0]):
        for head in range(query.shape[2]):
            q, k, v = (x[sample, :, head] for x in (query, key, value))
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


def test_rotary_products_depend_on_the_distance_alone():
    query, key = jax.random.normal(jax.random.key(2), (2, 8))
    tokens = 12
    turned_query = rotate(jnp.broadcast_to(query, (1, tokens, 1, 8)))[0, :, 0]
    turned_key = rotate(jnp.broadcast_to(key, (1, tokens, 1, 8)))[0, :, 0]
    products = np.asarray(turned_query @ turned_key.T)
    for distance in range(1 - tokens, tokens):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-5)
    assert abs(products[0, 0] - products[0, 5]) > 0.1


def test_rotary_positions_leave_the_first_token_and_all_lengths_alone():
    features = jax.random.normal(jax.random.key(3), (1, 6, 2, 8))
    turned = rotate(features)
    np.testing.assert_allclose(turned[:, 0], features[:, 0], atol=1e-6)
    np.testing.assert_allclose(
        jnp.linalg.norm(turned, axis=-1), jnp.linalg.norm(features, axis=-1), rtol=1e-5
    )


def test_the_time_embedding_is_sines_and_cosines_of_geometric_frequencies():
    time = np.array([0.0, 0.3, 1.0])
    angle = time[:, None] * np.array([1.0, 10.0, 100.0, 1000.0])
    expected = np.concatenate((np.sin(angle), np.cos(angle)), axis=1)
    got = sinusoidal_embedding(jnp.asarray(time, jnp.float32), 8)
    np.testing.assert_allclose(got, expected, atol=1e-3)


def test_grid_positions_are_sines_and_cosines_of_the_row_and_of_the_column():
    table = grid_positions(3, 8, np)
    assert table.dtype == np.float32
    for row in range(3):
        for column in range(3):
            angles = [place * frequency for place in (row, column) for frequency in (1, 0.01)]
            sines, cosines = np.sin(angles), np.cos(angles)
            expected = np.concatenate((sines[:2], cosines[:2], sines[2:], cosines[2:]))
            np.testing.assert_allclose(table[3 * row + column], expected, atol=1e-6)


def test_both_array_modules_make_the_same_grid_positions():
    computed, baked = grid_positions(32, 192, jnp), grid_positions(32, 192, np)
    assert isinstance(baked, np.ndarray)
    assert computed.dtype == jnp.float32
    np.testing.assert_allclose(computed, baked, atol=1e-5)
