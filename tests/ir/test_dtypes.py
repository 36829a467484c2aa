import pytest

from hloscope.ir.dtypes import BITS, jax_name

# Not in jax.numpy of every version that is supported.
NEWER = {"s1", "u1", "s2", "u2", "f6e2m3fn", "f6e3m2fn"}


@pytest.mark.parametrize("dtype", sorted(BITS.keys() - NEWER))
def test_jax_has_every_type_under_the_name_that_is_given(dtype):
    jnp = pytest.importorskip("jax.numpy")
    scalar = getattr(jnp, jax_name(dtype))
    bits = jnp.iinfo(scalar).bits if dtype[0] in "su" else jnp.dtype(scalar).itemsize * 8
    assert bits >= BITS[dtype]
