import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hloscope.capture.jaxpr_flops import product_flops_of
from hloscope.models import registry


def matmul_flops(function: Any, *args: Any) -> int:
    """FLOPs of the products that ``function`` traces to, which must leave nothing open."""
    flops = product_flops_of(function, *args)
    assert flops.exact
    return flops.nominal


def _step_flops(name, options=None, preset="small"):
    step = registry.get(name).build(preset, options or {})
    return matmul_flops(step.fn, *step.args)


def _parameters(name, options=None, preset="small"):
    step = registry.get(name).build(preset, options or {})
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(step.args[0]["params"]))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_count_of_convolutions_and_their_gradients_is_that_of_xla(padding, stride):
    image = jax.ShapeDtypeStruct((2, 13, 10, 6), jnp.float32)
    kernel = jax.ShapeDtypeStruct((3, 5, 6, 4), jnp.float32)

    def convolve(image, kernel):
        return jax.lax.conv_general_dilated(
            image, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def gradients(image, kernel, cotangent):
        _, pull = jax.vjp(convolve, image, kernel)
        return pull(cotangent)

    cotangent = jax.eval_shape(convolve, image, kernel)
    xla = jax.jit(gradients).lower(image, kernel, cotangent).cost_analysis()["flops"]
    # The pull-back recomputes nothing, so jit drops the forward convolution.
    forward = matmul_flops(convolve, image, kernel)
    assert matmul_flops(gradients, image, kernel, cotangent) - forward == pytest.approx(xla)


def test_small_causal_transformer_has_the_parameters_that_its_shapes_give():
    # Three layers of four attention and three gated-MLP products, two scales
    # each; the embedding, which is the head too; the last scale.
    layer = 4 * 768 * 768 + 3 * 768 * 3072 + 2 * 768
    assert _parameters("causal_transformer") == 3 * layer + 50304 * 768 + 768
    assert _parameters("causal_transformer") == pytest.approx(67e6, rel=0.01)


def test_small_causal_transformer_has_the_flops_that_its_shapes_give():
    tokens, length = 16 * 512, 512
    products = 3 * (4 * 768 * 768 + 3 * 768 * 3072) + 50304 * 768
    attention = 3 * 2 * length * 768
    # Forward two for a multiply-add; backward twice that, for both operands.
    assert _step_flops("causal_transformer") == 3 * 2 * tokens * (products + attention)


def test_small_causal_transformer_is_as_large_as_published():
    assert _step_flops("causal_transformer") == pytest.approx(3406e9, rel=0.001)


def test_small_unet_is_as_large_as_published():
    assert _parameters("unet") == pytest.approx(10e6, rel=0.15)
    assert _step_flops("unet") == pytest.approx(646e9, rel=0.15)


def test_small_hierarchical_mmdit_is_as_large_as_specified():
    assert _parameters("hierarchical_mmdit") == pytest.approx(55e6, rel=0.15)
    assert _step_flops("hierarchical_mmdit") == pytest.approx(737e9, rel=0.15)


def test_small_hierarchical_mmdit_attends_over_141_333_and_1101_joint_tokens():
    step = registry.get("hierarchical_mmdit").build("small", {"attention": "reference"})
    logits = set(_attended(jax.make_jaxpr(step.fn)(*step.args).jaxpr))
    # The text's last block asks nothing any more: 1024 of the image ask all 1101.
    assert logits == {(141, 141), (333, 333), (1101, 1101), (1024, 1101)}


def _attended(jaxpr):
    """Queries and keys of the softmaxes over logits ``[batch, heads, queries, keys]``."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "exp" and equation.outvars[0].aval.ndim == 4:
            yield equation.outvars[0].aval.shape[2:]
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _attended(inner)


def test_attention_routes_and_scanning_change_neither_flops_nor_parameters():
    flops, parameters = _step_flops("causal_transformer"), _parameters("causal_transformer")
    for options in ({"attention": "reference"}, {"scan_layers": "true"}, {"remat": "dots"}):
        assert _step_flops("causal_transformer", options) == flops
        assert _parameters("causal_transformer", options) == parameters


def test_full_rematerialization_runs_the_layers_products_once_more():
    tokens, length = 16 * 512, 512
    products = 3 * (4 * 768 * 768 + 3 * 768 * 3072)
    attention = 3 * 2 * length * 768
    # The last product of a layer feeds no gradient but the next layer's input,
    # which is kept: it is not run again.
    spared = 3 * 768 * 3072
    again = 2 * tokens * (products + attention - spared)
    for scan in ("false", "true"):
        full = _step_flops("causal_transformer", {"remat": "full", "scan_layers": scan})
        assert full - _step_flops("causal_transformer") == again


def test_flops_are_proportional_to_the_batch():
    for name in registry.names():
        once = _step_flops(name, {"batch": "2"}, "smoke")
        assert _step_flops(name, {"batch": "6"}, "smoke") == pytest.approx(3 * once, rel=0.02)


def test_in_the_small_transformer_only_the_head_multiplies_float32_by_float32():
    step = registry.get("causal_transformer").build("small")
    float32 = _float32_product_flops(jax.make_jaxpr(step.fn)(*step.args).jaxpr)
    assert float32 == 3 * 2 * 16 * 512 * 768 * 50304


def _float32_product_flops(jaxpr):
    """Of jaxprs without loops."""
    total = 0
    for equation in jaxpr.eqns:
        types = {str(variable.aval.dtype) for variable in equation.invars}
        if equation.primitive.name == "dot_general" and types == {"float32"}:
            (contracting, _), _ = equation.params["dimension_numbers"]
            depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracting)
            total += 2 * depth * math.prod(equation.outvars[0].aval.shape)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            total += _float32_product_flops(inner) if hasattr(inner, "eqns") else 0
    return total
