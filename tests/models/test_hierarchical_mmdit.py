"""The transformer's block against float64, its U, and its position tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from hloscope.capture.closed_over import find_closed_over
from hloscope.models import registry
from hloscope.models.hierarchical_mmdit import PRESETS, JointBlock, patches, unpatched
from hloscope.models.training import configured

WIDTH, IMAGE_TOKENS, TEXT_TOKENS = 96, 6, 5
CONFIG = configured(PRESETS["smoke"], {"dtype": "float32"})


def _block(*, text_ends=False):
    """A block whose gates are open: its parameters are drawn at random, modulations too."""
    block = JointBlock(WIDTH, CONFIG, text_ends=text_ends, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(block)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    drawn = [
        0.1 * jax.random.normal(*pair) for pair in zip(keys, (x.shape for x in leaves), strict=True)
    ]
    return nnx.merge(graphdef, jax.tree.unflatten(tree, drawn))


def _inputs():
    keys = jax.random.split(jax.random.key(2), 3)
    image = jax.random.normal(keys[0], (2, IMAGE_TOKENS, WIDTH))
    text = jax.random.normal(keys[1], (2, TEXT_TOKENS, WIDTH))
    return image, text, jax.random.normal(keys[2], (2, CONFIG.time_width))


def _in_float64(block, image, text, condition):
    """The block as the paper draws it, one sample and one head at a time."""

    def array(parameter):
        return np.asarray(parameter[...], np.float64)

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)

    def rms(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale

    def silu(x):
        return x / (1 + np.exp(-x))

    outs = []
    for sample in range(2):
        tokens = [np.asarray(x[sample], np.float64) for x in (image, text)]
        streams = (block.image, block.text)
        mods, keys, values, queries = [], [], [], []
        for stream, x in zip(streams, tokens, strict=True):
            modulation = np.asarray(condition[sample], np.float64) @ array(stream.modulation.kernel)
            mods.append(np.split(modulation + array(stream.modulation.bias), 6))
            entered = norm(x) * (1 + mods[-1][1]) + mods[-1][0]
            key, value, query = np.split(entered @ array(stream.key_value_query.kernel), 3, -1)
            keys.append((key, array(stream.norm_key.scale)))
            values.append(value)
            queries.append((query, array(stream.norm_query.scale)))
        attended = [np.zeros_like(x) for x in tokens]
        for head in range(WIDTH // CONFIG.head_width):
            part = slice(head * CONFIG.head_width, (head + 1) * CONFIG.head_width)
            key = np.concatenate([rms(k[:, part], scale) for k, scale in keys])
            value = np.concatenate([v[:, part] for v in values])
            for out, (query, scale) in zip(attended, queries, strict=True):
                weights = np.exp(rms(query[:, part], scale) @ key.T / np.sqrt(CONFIG.head_width))
                out[:, part] = weights / weights.sum(1, keepdims=True) @ value
        for stream, x, got, mod in zip(streams, tokens, attended, mods, strict=True):
            x = x + mod[2] * (got @ array(stream.out.kernel))
            entered = norm(x) * (1 + mod[4]) + mod[3]
            gated = silu(entered @ array(stream.mlp.gate.kernel)) * (
                entered @ array(stream.mlp.up.kernel)
            )
            outs.append(x + mod[5] * (gated @ array(stream.mlp.down.kernel)))
    return np.stack(outs[::2]), np.stack(outs[1::2])


def test_a_block_computes_what_float64_does():
    block, inputs = _block(), _inputs()
    for got, expected in zip(block(*inputs), _in_float64(block, *inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_a_block_starts_as_the_identity():
    block = JointBlock(WIDTH, CONFIG, rngs=nnx.Rngs(0))
    image, text, condition = _inputs()
    for got, given in zip(block(image, text, condition), (image, text), strict=True):
        np.testing.assert_array_equal(got, given)


def test_a_text_that_ends_still_reaches_the_image():
    block = _block(text_ends=True)
    image, text, condition = _inputs()
    plain, same = block(image, text, condition)
    other, _ = block(image, -text, condition)
    assert same is text
    assert jnp.abs(plain - other).max() > 1e-3


def test_every_parameter_of_every_block_has_a_gradient():
    training = registry.get("hierarchical_mmdit").training("small")
    step = training.build()
    jaxpr = jax.make_jaxpr(step.fn)(*step.args)
    # A parameter that nothing reads comes with moments that only ever decay.
    state = jax.tree_util.tree_flatten_with_path(step.args[0])[0]
    read = _read_before_the_optimizer(jaxpr.jaxpr)
    for variable, (path, _) in zip(jaxpr.jaxpr.invars, state, strict=False):
        if path[0].key == "params":
            assert variable in read, jax.tree_util.keystr(path)


def _read_before_the_optimizer(jaxpr):
    return {
        variable
        for equation in jaxpr.eqns
        if "optimizer" not in str(equation.source_info.name_stack)
        for variable in equation.invars
        if not hasattr(variable, "val")
    }


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


def test_baked_positions_are_closed_over_by_name():
    step = registry.get("hierarchical_mmdit").build("smoke", {"positions": "baked"})
    traced = jax.jit(step.fn).trace(*step.args)
    found = find_closed_over(step.fn, traced, traced.lower())
    tables = {array.names: array.dimensions for array in found.arrays}
    assert tables == {("position_tables[0]",): (64, 48), ("position_tables[1]",): (16, 96)}
