"""Layers in a loop and spelled out, and the order in which long skips are taken up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from hloscope.models.blocks.layers import LongSkips, make_layers, run_layers

RUN = {"remat": "none"}


class Affine(nnx.Module):
    def __init__(self, rngs):
        self.factor = nnx.Param(jax.random.normal(rngs.params(), (3,)))

    def __call__(self, x, *inputs):
        return x * self.factor[...] + sum(inputs, jnp.zeros(()))


def _both(create, number):
    """The same layers as a list and stacked."""
    listed = make_layers(create, number, scan=False, rngs=nnx.Rngs(0))
    stacked = make_layers(create, number, scan=True, rngs=nnx.Rngs(0))
    graphdef, _ = nnx.split(stacked)
    leaves = [nnx.split(layer)[1] for layer in listed]
    return listed, nnx.merge(graphdef, jax.tree.map(lambda *x: jnp.stack(x), *leaves))


@pytest.mark.parametrize("remat", ["none", "full", "dots", "dots_with_no_batch_dims", "names:a+b"])
def test_stacked_layers_compute_what_listed_ones_do(remat):
    listed, stacked = _both(Affine, 3)
    x, more = jnp.ones((2, 3)), jnp.full((2, 3), 0.5)
    run = {"remat": remat, "keep": True}
    hidden, kept = run_layers(stacked, x, more, **run)
    wanted, wanted_kept = run_layers(listed, x, more, **run)
    np.testing.assert_allclose(hidden, wanted, rtol=1e-6)
    np.testing.assert_allclose(kept, jnp.stack(wanted_kept), rtol=1e-6)


def test_skips_are_taken_up_last_first():
    listed, stacked = _both(Affine, 3)
    factors = [layer.factor[...] for layer in listed]
    x, skips = jnp.ones(3), jnp.arange(9.0).reshape(3, 3)
    wanted = x
    for index in (2, 1, 0):
        wanted = wanted * factors[index] + skips[index]
    for layers in (listed, stacked):
        got, kept = run_layers(layers, x, skips=skips, **RUN)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
        assert kept is None


@pytest.mark.parametrize("scan", [False, True])
def test_what_the_first_layer_puts_out_reaches_the_last(scan):
    blocks = LongSkips(Affine, 5, 3, scan=scan, dtype=jnp.float32, rngs=nnx.Rngs(0))
    # A join that takes the skip alone: all between the first and the last layer is lost.
    joins = [blocks.last.join] if scan else [layer.join for layer in blocks.last]
    alone = jnp.concatenate((jnp.zeros((3, 3)), jnp.eye(3)))
    for join in joins:
        join.kernel[...] = jnp.broadcast_to(alone, join.kernel.shape)
    ends = [blocks.first, blocks.last.layer] if scan else [blocks.first[0], blocks.last[0].layer]
    first, last = (end.factor[...][0] if scan else end.factor[...] for end in ends)
    x = jax.random.normal(jax.random.key(1), (1, 2, 3))
    np.testing.assert_allclose(blocks(x, **RUN), x * first * last, rtol=1e-6)


def test_a_policy_of_names_keeps_what_has_one_of_them():
    class Named(nnx.Module):
        def __call__(self, x):
            kept = jax.ad_checkpoint.checkpoint_name(jnp.sin(x), "kept")
            return jnp.sin(jax.ad_checkpoint.checkpoint_name(jnp.cos(kept), "again"))

    def gradient(remat):
        def loss(x):
            return run_layers([Named()], x, remat=remat)[0]

        return str(jax.make_jaxpr(jax.grad(loss))(1.0))

    # What is not kept is computed once more behind the forward pass.
    assert gradient("none").count("= sin") < gradient("full").count("= sin")
    assert gradient("names:kept").count("= sin") < gradient("full").count("= sin")
