"""The block of two streams against float64."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hloscope.models.blocks.joint import JointBlock

WIDTH, IMAGE_TOKENS, TEXT_TOKENS = 96, 6, 5
HEAD_WIDTH, CONDITION_WIDTH = 48, 32


def _closed(*, text_ends=False):
    return JointBlock(
        WIDTH,
        HEAD_WIDTH,
        CONDITION_WIDTH,
        text_ends=text_ends,
        route="xla",
        dtype=jnp.float32,
        rngs=nnx.Rngs(0),
    )


def _block(*, text_ends=False):
    """A block whose gates are open: its parameters are drawn at random, modulations too."""
    block = _closed(text_ends=text_ends)
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
    return image, text, jax.random.normal(keys[2], (2, CONDITION_WIDTH))


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
        for head in range(WIDTH // HEAD_WIDTH):
            part = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
            key = np.concatenate([rms(k[:, part], scale) for k, scale in keys])
            value = np.concatenate([v[:, part] for v in values])
            for out, (query, scale) in zip(attended, queries, strict=True):
                weights = np.exp(rms(query[:, part], scale) @ key.T / np.sqrt(HEAD_WIDTH))
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
    block = _closed()
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
