import jax.numpy as jnp
import numpy as np
import pytest

from hloscope.models.blocks.patches import patches, unpatched


@pytest.mark.parametrize("size", [1, 2, 4])
def test_patches_go_row_by_row_and_come_back(size):
    grid = jnp.arange(2 * 8 * 8 * 3).reshape(2, 8, 8, 3)
    cut = patches(grid, size)
    row, column = 1, 8 // size - 1
    first = grid[:, row * size : (row + 1) * size, column * size : (column + 1) * size]
    place = row * (8 // size) + column
    if size < 8:
        np.testing.assert_array_equal(cut[:, place], first.reshape(2, -1))
    np.testing.assert_array_equal(unpatched(cut, 8, size), grid)
