"""``--set quantize``: which products are in eight bits, and that they train."""

import math
import re
import warnings
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qwix
from flax import nnx
from quick_compile import QUICK

from hloscope.errors import UsageError
from hloscope.models import registry
from hloscope.models.quantization import quantize

E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2


def _products(jaxpr, runs=1):
    """Products by their operands' types, each as often as its loop runs."""
    found = Counter()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found[tuple(variable.aval.dtype for variable in equation.invars)] += runs
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += _products(inner, runs * times)
    return found


def _in_eight_bits(products):
    found = {}
    for operands, number in products.items():
        if all(dtype.itemsize == 1 for dtype in operands):
            found[tuple(map(str, operands))] = number
    return found


# Linear layers in the layers of each smoke model.
LAYERS = {
    # Two layers: query, key, value, out; gate, up, down.
    "causal_transformer": 2 * (4 + 3),
    # The second layer has experts in place of its MLP.
    "moe_transformer": 4 + 3 + 4,
    # Four layers: query, key, value, out; up, down. Modulations stay.
    "simple_dit": 4 * (4 + 2),
    # Four layers: query, key, value, gate, out; the MLP's three. The rates stay.
    "gated_deltanet": 4 * (5 + 3),
    # Two layers on each side of the middle, those of the way up with a joint.
    "uvit": 2 * (4 + 2) + (4 + 2) + 2 * (1 + 4 + 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_each_linear_layer_multiplies_three_times_in_float8(name, traced):
    found = _in_eight_bits(_products(traced(name, "smoke", quantize="fp8").jaxpr))
    forward, gradient = "float8_e4m3fn", "float8_e5m2"
    assert found == {
        (forward, forward): LAYERS[name],
        (gradient, forward): LAYERS[name],
        (forward, gradient): LAYERS[name],
    }


def test_int8_is_in_the_forward_pass_alone(traced):
    found = _in_eight_bits(_products(traced("causal_transformer", "smoke", quantize="int8").jaxpr))
    assert found == {("int8", "int8"): LAYERS["causal_transformer"]}


def test_what_is_computed_again_is_computed_in_float8_again(traced):
    step = traced("causal_transformer", "smoke", quantize="fp8", scan_layers="true", remat="full")
    found = _in_eight_bits(_products(step.jaxpr))
    # Of a layer's seven forward products nothing needs the last one's result again.
    assert found["float8_e4m3fn", "float8_e4m3fn"] == 2 * (7 + 6)
    assert found["float8_e5m2", "float8_e4m3fn"] == 2 * 7


def test_quantizing_changes_the_types_of_products_but_not_their_number(traced):
    plain, other = (
        _products(traced("causal_transformer", "smoke", quantize=kind).jaxpr)
        for kind in ("none", "fp8")
    )
    assert plain.total() == other.total()
    assert not _in_eight_bits(plain)


class Stack(nnx.Module):
    def __init__(self, dtype):
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(48, 32, dtype=dtype, rngs=rngs)])

    def __call__(self, rows):
        return self.layers[0](rows)


ROWS = jax.random.normal(jax.random.key(1), (2, 16, 48))
WEIGHTS = jax.random.normal(jax.random.key(2), (2, 16, 32))


def _gradients(model, rows, weights):
    """What the stack gives, and the gradients of its weighted sum by rows and matrix."""
    graphdef, params = nnx.split(model)

    def loss(params, rows):
        out = nnx.merge(graphdef, params)(rows)
        return jnp.sum((out * weights).astype(jnp.float32)), out

    both = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (_, out), (by_params, by_rows) = jax.jit(both, compiler_options=QUICK)(params, rows)
    return out, by_rows, by_params["layers"][0]["kernel"][...]


@pytest.mark.parametrize(("kind", "types"), [("fp8", (E4M3, E5M2)), ("int8", (jnp.int8, None))])
def test_products_and_gradients_are_those_of_qwix_own_training(kind, types):
    forward, gradient = types
    rule = qwix.QtRule(weight_qtype=forward, act_qtype=forward, bwd_qtype=gradient)
    with warnings.catch_warnings():
        # Theirs looks a layer's parameters up in a way that flax is giving up.
        warnings.simplefilter("ignore", DeprecationWarning)
        provider = qwix.QtProvider([rule])
        theirs = qwix.quantize_model(Stack(jnp.float32), provider, ROWS, skip_nnx_init=True)
        wanted = _gradients(theirs, ROWS, WEIGHTS)
    found = _gradients(quantize(Stack(jnp.float32), kind), ROWS, WEIGHTS)
    for got, expected in zip(found, wanted, strict=True):
        assert got.dtype == expected.dtype
        # Sums of float32 in another order; a rounding elsewhere would be off by a hundredth.
        largest = float(jnp.abs(expected).max())
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * largest)


def test_products_are_off_by_no_more_than_their_operands_rounding():
    exact = _gradients(Stack(jnp.float32), ROWS, WEIGHTS)
    near = _gradients(quantize(Stack(jnp.float32), "fp8"), ROWS, WEIGHTS)
    # A factor is off by 2^-4 at most in e4m3 and by 2^-3 in e5m2, and sums by less.
    for got, wanted, bits in zip(near, exact, (4, 3, 3), strict=True):
        off = jnp.linalg.norm(got - wanted) / jnp.linalg.norm(wanted)
        assert 0 < off < 2.0**-bits


def test_a_model_without_layers_is_not_quantized_silently():
    with pytest.raises(ValueError, match="Linear has no layer to quantize"):
        quantize(nnx.Linear(8, 8, rngs=nnx.Rngs(0)), "fp8")


@pytest.mark.parametrize("name", ["unet", "unet_3d"])
def test_convolutions_are_not_quantized_and_who_asks_is_told(name):
    with pytest.raises(UsageError, match="no option 'quantize'"):
        registry.get(name).check({"quantize": "fp8"})


TRAINED = [
    ("causal_transformer", (("quantize", "fp8"),), 0.6),
    ("simple_dit", (("quantize", "fp8"), ("remat", "full")), 0.6),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "share"), TRAINED)
def test_a_quantized_step_learns_its_batch_and_aliases_its_state(name, options, share):
    training = registry.get(name).training("smoke", dict(options))
    state, inputs = jax.jit(
        lambda key: (training.init(key), training.example(key)), compiler_options=QUICK
    )(jax.random.key(0))
    leaves = len(jax.tree.leaves(state))
    step = registry.get(name).build("smoke", dict(options))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered = jax.jit(step.fn, donate_argnums=step.donate).lower(*step.args)
        compiled = lowered.compile(compiler_options=QUICK)
    header = compiled.as_text().split("\n", 1)[0]
    aliased = re.findall(r"\{(\d+)\}: \((\d+), \{\}, \w+-alias\)", header)
    assert {int(parameter) for _, parameter in aliased} == set(range(leaves))
    losses = []
    for _ in range(40):
        state, metrics = compiled(state, *inputs)
        losses.append(float(metrics["loss"]))
        assert math.isfinite(metrics["grad_norm"])
    assert np.mean(losses[-10:]) < share * losses[0]
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(state["params"]))
