"""What updates do: decay, orthogonal updates, moments that are kept in bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hloscope.models.optimizers import kept_in, make_optimizer


def _changes(optimizer, params, gradients):
    return optimizer.update(gradients, optimizer.init(params), params)[0]


def test_adamw_decays_kernels_and_embeddings_and_no_scale_or_bias():
    params = {0: {name: jnp.ones(3) for name in ("kernel", "bias", "scale", "embedding")}}
    updates = _changes(
        make_optimizer("adamw", 0.5, jnp.float32), params, jax.tree.map(jnp.zeros_like, params)
    )
    changes = {name: float(update[0]) for name, update in updates[0].items()}
    decay = pytest.approx(-0.5 * 0.01)
    assert changes == {"kernel": decay, "bias": 0, "scale": 0, "embedding": decay}


def test_muon_updates_each_stacked_matrix_by_one_that_is_nearly_orthogonal():
    keys = jax.random.split(jax.random.key(0), 2)
    params = {"layers": {"kernel": jnp.zeros((2, 8, 8)), "bias": jnp.zeros((2, 8))}}
    gradients = {
        "layers": {
            "kernel": jax.random.normal(keys[0], (2, 8, 8)),
            "bias": jax.random.normal(keys[1], (2, 8)),
        }
    }
    updates = _changes(make_optimizer("muon", 1.0, jnp.float32), params, gradients)["layers"]
    for update, gradient in zip(updates["kernel"], gradients["layers"]["kernel"], strict=True):
        # Five iterations bring the singular values to about one, times 0.2 sqrt(8).
        values = np.linalg.svd(update, compute_uv=False) / (0.2 * np.sqrt(8))
        assert 0.5 < values.min() <= values.max() < 1.5
        assert np.vdot(update, gradient) < 0
    # The first step of Adam goes as far in every place, with Nesterov's momentum too.
    steps = -updates["bias"] * np.sign(gradients["layers"]["bias"])
    np.testing.assert_allclose(steps, steps[0, 0], rtol=1e-2)
    assert steps[0, 0] > 0


def test_moments_kept_in_bfloat16_follow_those_in_float32():
    narrow = kept_in(jnp.bfloat16, optax.scale_by_adam(b2=0.999))
    wide = optax.scale_by_adam(b2=0.999)
    params = {"kernel": jnp.zeros(20_000)}
    # A gradient that has become small: the second moment has to shrink by a
    # thousandth a step, less than half of the distance between two bfloat16.
    first, later = (jax.tree.map(lambda x, v=v: x + v, params) for v in (1.0, 0.0))
    states = [optimizer.init(params) for optimizer in (narrow, wide)]
    for gradient in (first, *[later] * 100):
        states = [
            optimizer.update(gradient, state)[1]
            for optimizer, state in zip((narrow, wide), states, strict=True)
        ]
    kept, exact = states[0]["kept"].nu["kernel"], states[1].nu["kernel"]
    assert kept.dtype == jnp.bfloat16
    assert exact[0] == pytest.approx(0.001 * 0.999**100, rel=1e-3)
    assert float(jnp.mean(kept.astype(jnp.float32))) == pytest.approx(float(exact[0]), rel=2e-3)


def test_moments_are_kept_in_no_other_type():
    with pytest.raises(ValueError, match="float16"):
        kept_in(jnp.float16, optax.sgd(1.0))


def test_a_moment_that_is_no_number_stays_one():
    optimizer = kept_in(jnp.bfloat16, optax.trace(0.9))
    params = {"kernel": jnp.zeros(3)}
    gradient = {"kernel": jnp.array([jnp.inf, jnp.nan, 1.0])}
    kept = optimizer.update(gradient, optimizer.init(params))[1]["kept"].trace["kernel"]
    assert kept[0] == jnp.inf
    assert jnp.isnan(kept[1])
    assert kept[2] == 1
