import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend import core

from hloscope.models import registry


def matmul_flops(function: Any, *args: Any) -> int:
    """FLOPs of the matrix products and convolutions that ``function`` traces to.

    Two for each multiply-add. A convolution counts only the pairs of input and
    kernel elements that meet: positions in the padding, or in the holes that
    dilation makes, are left out.
    """
    return _jaxpr_flops(jax.make_jaxpr(function)(*args).jaxpr)


def _jaxpr_flops(jaxpr: core.Jaxpr) -> int:
    return sum(_equation_flops(equation) for equation in jaxpr.eqns)


def _equation_flops(equation: core.JaxprEqn) -> int:
    name = equation.primitive.name
    if name == "dot_general":
        return _dot_flops(equation)
    if name == "conv_general_dilated":
        return _conv_flops(equation)
    inner = sum(_jaxpr_flops(jaxpr) for jaxpr in _inner_jaxprs(equation))
    assert name not in ("while", "cond") or inner == 0, f"unknown number of runs of {name}"
    return inner * equation.params["length"] if name == "scan" else inner


def _inner_jaxprs(equation: core.JaxprEqn) -> list[core.Jaxpr]:
    found = []
    for value in equation.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                found.append(item.jaxpr)
            elif isinstance(item, core.Jaxpr):
                found.append(item)
    return found


def _dot_flops(equation: core.JaxprEqn) -> int:
    (contracting, _), _ = equation.params["dimension_numbers"]
    depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracting)
    return 2 * depth * math.prod(equation.outvars[0].aval.shape)


def _conv_flops(equation: core.JaxprEqn) -> int:
    params = equation.params
    numbers = params["dimension_numbers"]
    lhs, rhs = (variable.aval.shape for variable in equation.invars)
    out = equation.outvars[0].aval.shape
    pairs = 1
    for place, stride in enumerate(params["window_strides"]):
        pairs *= _meeting_pairs(
            size=lhs[numbers.lhs_spec[2 + place]],
            kernel=rhs[numbers.rhs_spec[2 + place]],
            out=out[numbers.out_spec[2 + place]],
            stride=stride,
            low=params["padding"][place][0],
            lhs_dilation=params["lhs_dilation"][place],
            rhs_dilation=params["rhs_dilation"][place],
        )
    batch, features = out[numbers.out_spec[0]], out[numbers.out_spec[1]]
    return 2 * pairs * batch * features * rhs[numbers.rhs_spec[1]]


def _meeting_pairs(
    *, size: int, kernel: int, out: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> int:
    reach = (size - 1) * lhs_dilation + 1
    return sum(
        0 <= place < reach and place % lhs_dilation == 0
        for position in range(out)
        for place in range(
            position * stride - low, position * stride - low + kernel * rhs_dilation, rhs_dilation
        )
    )


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
    total = sum(
        _dot_flops(equation)
        for equation in jaxpr.eqns
        if equation.primitive.name == "dot_general"
        and {str(variable.aval.dtype) for variable in equation.invars} == {"float32"}
    )
    inner = (found for equation in jaxpr.eqns for found in _inner_jaxprs(equation))
    return total + sum(_float32_product_flops(found) for found in inner)
