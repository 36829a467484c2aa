import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hloscope.capture.jaxpr_flops import count_jaxpr, product_flops_of


def matmul_flops(function: Any, *args: Any) -> int:
    """FLOPs of the products that ``function`` traces to, which must leave nothing open."""
    flops = product_flops_of(function, *args)
    assert flops.exact
    return flops.nominal


@pytest.fixture
def step_flops(traced):
    """FLOPs of the products of an architecture's step."""

    def count(name, preset="small", **options):
        flops = count_jaxpr(traced(name, preset, **options)).total
        assert flops.exact
        return flops.nominal

    return count


@pytest.fixture
def parameters(built):
    """How many parameters an architecture has."""

    def count(name, **options):
        leaves = jax.tree.leaves(built(name, **options).args[0]["params"])
        return sum(math.prod(leaf.shape) for leaf in leaves)

    return count


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


def test_small_causal_transformer_has_the_parameters_that_its_shapes_give(parameters):
    # Three layers of four attention and three gated-MLP products, two scales
    # each; the embedding, which is the head too; the last scale.
    layer = 4 * 768 * 768 + 3 * 768 * 3072 + 2 * 768
    assert parameters("causal_transformer") == 3 * layer + 50304 * 768 + 768
    assert parameters("causal_transformer") == pytest.approx(67e6, rel=0.01)


def test_small_causal_transformer_has_the_flops_that_its_shapes_give(step_flops):
    tokens, length = 16 * 512, 512
    products = 3 * (4 * 768 * 768 + 3 * 768 * 3072) + 50304 * 768
    attention = 3 * 2 * length * 768
    # Forward two for a multiply-add; backward twice that, for both operands.
    assert step_flops("causal_transformer") == 3 * 2 * tokens * (products + attention)


def test_small_causal_transformer_is_as_large_as_published(step_flops):
    assert step_flops("causal_transformer") == pytest.approx(3406e9, rel=0.001)


def test_the_base_causal_transformer_shares_keys_and_has_a_head_of_its_own(built):
    leaves = jax.tree.leaves(built("causal_transformer", "base").args[0]["params"])
    # Four heads of sixteen have keys and values.
    layer = 2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 2816 + 2 * 1024
    expected = 24 * layer + 2 * 32000 * 1024 + 1024
    assert sum(math.prod(leaf.shape) for leaf in leaves) == expected
    assert expected == pytest.approx(0.3e9, rel=0.15)


def test_the_small_moe_transformer_has_seven_experts_more_and_a_router(parameters):
    more = 7 * 3 * 768 * 3072 + 768 * 8
    assert parameters("moe_transformer") == parameters("causal_transformer") + more


@pytest.mark.parametrize(("experts", "run"), [("ragged", 2), ("dense", 8)])
def test_a_token_pays_for_the_experts_that_it_runs(experts, run, step_flops):
    # Beside the one MLP of the dense layer; and the router, forward and backward. The
    # weighing of what experts put out is a product, too, of a few thousandths.
    tokens = 16 * 512
    more = 3 * 2 * tokens * ((run - 1) * 3 * 768 * 3072 + 768 * 8)
    weighing = 3 * 2 * tokens * run * 768
    found = step_flops("moe_transformer", experts=experts) - step_flops("causal_transformer")
    assert more + weighing / 3 <= found <= more + 2 * weighing


def test_small_ssm_has_the_parameters_and_flops_that_its_shapes_give(parameters, step_flops):
    width, inner, state, heads, chunk = 512, 1024, 128, 16, 128
    products = width * (2 * inner + 2 * state + heads) + inner * width
    # Taps and what is per head: rate, offset and skip; two scales.
    layer = products + 4 * (inner + 2 * state) + 3 * heads + width + inner
    assert parameters("ssm") == 8 * layer + 50304 * width + width
    # Inside a chunk scores and weighted values; into a state and out of it again.
    recurrence = chunk * state + chunk * inner + 2 * state * inner
    forward = 8 * (products + recurrence) + 50304 * width
    assert step_flops("ssm") == 3 * 2 * 8 * 1024 * forward


def test_small_gated_deltanet_has_the_parameters_and_flops_that_its_shapes_give(
    parameters, step_flops
):
    width, heads, key, value, chunk, hidden = 512, 3, 128, 256, 64, 1408
    keys, values = heads * key, heads * value
    products = width * (2 * keys + 3 * values + 2 * heads) + 3 * width * hidden
    layer = products + 4 * (2 * keys + values) + 2 * heads + value + 2 * width
    assert parameters("gated_deltanet") == 6 * layer + 50304 * width + width
    # Halves of 16 and 32 tokens are inverted by two products each, smaller ones without any.
    inverse = sum(half**2 for half in (16, 32))
    inside = chunk * (3 * key + 2 * value) + inverse
    forward = 6 * (products + heads * (inside + 3 * key * value)) + 50304 * width
    assert step_flops("gated_deltanet") == 3 * 2 * 8 * 1024 * forward


# Million parameters and GFLOP of a step, as published for these shapes.
PUBLISHED = {
    "unet": (10, 646),
    "uvit": (24, 618),
    "simple_udit": (23, 363),
    "simple_dit": (20, 293),
    "simple_mmdit": (36, 384),
    "hierarchical_mmdit": (55, 737),
    "hybrid_dit": (19, 245),
    "video_dit": (25, 760),
    "unet_3d": (11, 1384),
    "jepa_encoder": (12, 297),
    "jepa_video_encoder": (16, 758),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_small_model_is_as_large_as_published(name, parameters, step_flops):
    millions, gigaflops = PUBLISHED[name]
    assert parameters(name) == pytest.approx(millions * 1e6, rel=0.15)
    assert step_flops(name) == pytest.approx(gigaflops * 1e9, rel=0.15)


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        # The text's last block asks nothing any more: 1024 of the image ask all 1101.
        ("hierarchical_mmdit", {(141, 141), (333, 333), (1101, 1101), (1024, 1101)}),
        ("simple_mmdit", {(333, 333), (256, 333)}),
        ("simple_dit", {(256, 256)}),
        ("uvit", {(334, 334)}),
    ],
)
def test_small_models_attend_over_as_many_tokens_as_published(name, lengths, traced):
    assert set(_attended(traced(name, attention="reference").jaxpr)) == lengths


def _attended(jaxpr):
    """Queries and keys of the softmaxes over logits ``[batch, heads, queries, keys]``."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "exp" and equation.outvars[0].aval.ndim == 4:
            yield equation.outvars[0].aval.shape[2:]
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _attended(inner)


@pytest.mark.parametrize("name", ["causal_transformer", "simple_udit"])
def test_attention_routes_and_scanning_change_neither_flops_nor_parameters(
    name, step_flops, parameters
):
    flops, number = step_flops(name, scan_layers="false"), parameters(name, scan_layers="false")
    for option in ({"attention": "reference"}, {"scan_layers": "true"}, {"remat": "dots"}):
        chosen = {"scan_layers": "false", **option}
        assert step_flops(name, **chosen) == flops
        assert parameters(name, **chosen) == number


def test_full_rematerialization_runs_the_layers_products_once_more(step_flops):
    tokens, length = 16 * 512, 512
    products = 3 * (4 * 768 * 768 + 3 * 768 * 3072)
    attention = 3 * 2 * length * 768
    # The last product of a layer feeds no gradient but the next layer's input,
    # which is kept: it is not run again.
    spared = 3 * 768 * 3072
    again = 2 * tokens * (products + attention - spared)
    for scan in ("false", "true"):
        full = step_flops("causal_transformer", remat="full", scan_layers=scan)
        assert full - step_flops("causal_transformer") == again


@pytest.mark.parametrize(
    "name", ["causal_transformer", "moe_transformer", "unet", "simple_dit", "jepa_encoder"]
)
def test_flops_are_proportional_to_the_batch(name, step_flops):
    once = step_flops(name, "smoke", batch="2")
    assert step_flops(name, "smoke", batch="6") == pytest.approx(3 * once, rel=0.02)


def test_in_the_small_transformer_only_the_head_multiplies_float32_by_float32(traced):
    float32 = _float32_product_flops(traced("causal_transformer").jaxpr)
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
