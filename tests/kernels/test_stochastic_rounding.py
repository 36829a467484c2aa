import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hloscope.models.blocks.stochastic_rounding import hashed_bits, round_at_random

VALUES = jnp.asarray([1.0, 1.001, -3.1415927, 1e-30, 255.3], jnp.float32)


@pytest.fixture(scope="module")
def bits():
    seed = jnp.asarray([7, 11], jnp.uint32)
    return jax.jit(lambda: hashed_bits((1 << 14, 5), seed, jnp.int32(3)))()


def test_values_go_to_one_of_their_two_neighbours(bits):
    rounded = round_at_random(jnp.broadcast_to(VALUES, bits.shape), bits & 0xFFFF)
    low = jax.lax.bitcast_convert_type(
        jax.lax.bitcast_convert_type(VALUES, jnp.uint32) & jnp.uint32(0xFFFF0000), jnp.float32
    )
    for column, value in enumerate(VALUES):
        found = np.unique(np.asarray(rounded[:, column]).astype(np.float64))
        assert len(found) == (1 if float(value) == float(low[column]) else 2)
        assert float(low[column]) in found


def test_rounding_is_right_on_the_average(bits):
    rounded = round_at_random(jnp.broadcast_to(VALUES, bits.shape), bits & 0xFFFF)
    mean = np.asarray(rounded).astype(np.float64).mean(axis=0)
    # A spacing of at most 2^-7 of the value, drawn 2^14 times: the mean strays by 2^-15 or so.
    np.testing.assert_allclose(mean, np.asarray(VALUES, np.float64), rtol=2.0**-12)


def test_bits_are_even_and_differ_with_step_and_place(bits):
    ones = np.unpackbits(np.asarray(bits).view(np.uint8))
    assert ones.mean() == pytest.approx(0.5, abs=0.005)
    assert len(np.unique(np.asarray(bits))) > 0.999 * bits.size
    seed = jnp.asarray([7, 11], jnp.uint32)
    later = hashed_bits((64, 5), seed, jnp.int32(4))
    assert not np.isin(np.asarray(later), np.asarray(bits[:64])).any()


def test_no_place_of_one_step_has_the_bits_of_another_place_of_another_step():
    seed = jnp.asarray([0, 0], jnp.uint32)
    steps = [np.asarray(hashed_bits((4, 8, 4), seed, jnp.int32(step))) for step in range(32)]
    assert len(np.unique(steps)) == 32 * 128


def test_arrays_of_every_rank_have_bits():
    seed = jnp.asarray([7, 11], jnp.uint32)
    flat = np.asarray(hashed_bits((24,), seed, jnp.int32(3)))
    np.testing.assert_array_equal(hashed_bits((2, 3, 4), seed, jnp.int32(3)).ravel(), flat)
    assert hashed_bits((), seed, jnp.int32(3)) == flat[0]
