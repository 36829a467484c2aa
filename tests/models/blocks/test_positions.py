import jax
import jax.numpy as jnp
import numpy as np

from hloscope.capture.closed_over import find_closed_over
from hloscope.models import registry
from hloscope.models.blocks.positions import (
    grid_positions,
    line_positions,
    rotate,
    sinusoidal_embedding,
)


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


def test_line_positions_are_sines_and_cosines_of_the_place():
    table = line_positions(5, 4, np)
    assert table.dtype == np.float32
    angles = np.arange(5)[:, None] * np.array([1, 0.01])
    np.testing.assert_allclose(table, np.hstack((np.sin(angles), np.cos(angles))), atol=1e-6)


def test_baked_tables_are_closed_over_by_name_for_the_whole_batch():
    step = registry.get("hierarchical_mmdit").build("smoke", bad=("baked-table",))
    traced = jax.jit(step.fn).trace(*step.args)
    found = find_closed_over(step.fn, traced, traced.lower())
    tables = {array.names: array.dimensions for array in found.arrays}
    assert tables == {("baked_tables[0]",): (8, 64, 48), ("baked_tables[1]",): (8, 16, 96)}
