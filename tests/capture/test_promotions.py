import dataclasses
import json

import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy
np = pytest.importorskip("numpy")

from hloscope.capture.promotions import find_promotions  # noqa: E402
from hloscope.ir.jaxpr_promotions import JaxprPromotions  # noqa: E402

X = jax.ShapeDtypeStruct((8, 16), "bfloat16")
W = jax.ShapeDtypeStruct((8, 16), "float32")
S = jax.ShapeDtypeStruct((), "float32")


def rows_of(function, *arguments):
    return find_promotions(jax.jit(function).trace(*(arguments or (X,))).jaxpr).rows


def partners(*rows):
    return [(row.operation, row.partner, row.partner_text) for row in rows]


@pytest.mark.parametrize(
    ("function", "arguments", "partner"),
    [
        (lambda x: x * np.float32(2), (X,), ("mul", "number", "2")),
        (lambda x: x * jnp.float32(3), (X,), ("mul", "number", "3")),
        (lambda x, s: x * s, (X, S), ("mul", "number", "argument")),
        (lambda x: x + jnp.arange(16.0), (X,), ("add", "array", "iota")),
        (lambda x, w: x + w, (X, W), ("add", "array", "argument")),
        (lambda x: jnp.where(x > 0, x, np.float32(0)), (X,), ("select_n", "number", "0")),
        (lambda x, w: jnp.concatenate([x, w]), (X, W), ("concatenate", "array", "argument")),
        (lambda x, s: jnp.maximum(x, s), (X, S), ("max", "number", "argument")),
    ],
)
def test_what_a_strongly_typed_value_widens_is_a_promotion(function, arguments, partner):
    (row,) = rows_of(function, *arguments)
    assert partners(row) == [partner]
    assert (row.source, row.result, row.dimensions) == ("bf16", "f32", (8, 16))
    assert (row.count, row.elements, row.exact) == (1, 128, True)
    assert row.file.endswith("test_promotions.py")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2.0,  # a Python number is weakly typed
        lambda x: jnp.where(x > 0, x, 0.0),
        lambda x: x.astype(jnp.float32) * np.float32(2),  # asked for
        lambda x: jax.lax.convert_element_type(x, "float32") * np.float32(2),
        lambda x: jnp.asarray(x, jnp.float32) + jnp.arange(16.0),
        lambda x: x * np.float32(2).astype(x.dtype),
        lambda x: x * jnp.arange(16),  # integers give way
        jnp.sum,  # JAX adds up in float32 by itself
        jnp.mean,
        jnp.var,
        jnp.linalg.norm,
        jax.nn.softmax,
        jax.nn.gelu,
    ],
)
def test_what_the_program_asks_for_or_jax_does_inside_is_none(function):
    assert rows_of(function) == ()


def test_a_line_in_a_loop_counts_as_often_as_it_runs():
    def f(x):
        def body(h, _):
            return (h * np.float32(2)).astype(h.dtype), None

        return jax.lax.scan(body, x, None, length=5)[0]

    (row,) = rows_of(f)
    assert (row.count, row.elements, row.exact) == (5, 5 * 128, True)


def test_a_loop_of_unknown_length_is_run_once_and_says_so():
    def f(x):
        return jax.lax.while_loop(
            lambda h: h[0, 0] < 1, lambda h: (h * np.float32(2)).astype(h.dtype), x
        )

    (row,) = rows_of(f)
    assert (row.count, row.exact) == (1, False)


def test_lines_that_share_a_function_of_jax_keep_their_own_lines():
    def f(x):
        a = x * np.float32(2)
        b = x * np.float32(3)
        return a, b

    first, second = rows_of(f)
    assert second.line == first.line + 1


def test_a_promotion_inside_a_jitted_function_and_its_gradient_has_its_line():
    inner = jax.jit(lambda x, s: x * s)
    rows = rows_of(jax.grad(lambda x, s: inner(x, s).sum()), X, S)
    assert {row.line for row in rows} == {inner.__wrapped__.__code__.co_firstlineno}
    assert all((row.source, row.result) == ("bf16", "f32") for row in rows)


def test_integers_that_a_weak_number_makes_float64_are_told_as_such():
    with jax.enable_x64(True):
        ids = jax.ShapeDtypeStruct((32,), "int32")
        (row,) = rows_of(lambda i: i * 0.5, ids)
    assert (row.source, row.result, row.partner_weak) == ("s32", "f64", True)


def test_they_survive_a_file():
    found = JaxprPromotions(rows_of(lambda x: x * np.float32(2)))
    document = json.loads(json.dumps(dataclasses.asdict(found)))
    assert JaxprPromotions.from_document(document) == found
    assert JaxprPromotions.from_document(None) is None
