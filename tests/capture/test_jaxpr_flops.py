"""The jaxpr's FLOPs against XLA's count of unoptimized programs, and against arithmetic."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from hloscope.capture.jaxpr_flops import count_jaxpr, product_flops_of
from hloscope.ir.jaxpr_count import JaxprFlops

F32 = jnp.float32
SQUARE = jax.ShapeDtypeStruct((8, 8), F32)
PRODUCT = 2 * 8 * 8 * 8


def shape(*dimensions, dtype=F32):
    return jax.ShapeDtypeStruct(dimensions, dtype)


def counted(function, *args):
    return count_jaxpr(jax.make_jaxpr(function)(*args))


def xla(function, *args):
    return jax.jit(function).lower(*args).cost_analysis()["flops"]


def exactly(number):
    return JaxprFlops(number, number, number)


@pytest.mark.parametrize(
    ("equation", "lhs", "rhs"),
    [
        ("ij,jk->ik", (3, 5), (5, 7)),
        ("bij,bjk->bik", (2, 3, 5), (2, 5, 7)),
        ("abij,jbka->abik", (2, 3, 4, 5), (5, 3, 7, 2)),
        ("i,i->", (11,), (11,)),
        ("ijk,kj->i", (2, 3, 4), (4, 3)),
    ],
)
def test_products_are_counted_as_xla_counts_them(equation, lhs, rhs):
    def product(a, b):
        return jnp.einsum(equation, a, b)

    assert product_flops_of(product, shape(*lhs), shape(*rhs)) == exactly(
        int(xla(product, shape(*lhs), shape(*rhs)))
    )


@pytest.mark.parametrize("groups", ["feature_group_count", "batch_group_count"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", ["SAME", "VALID", [(2, 1), (0, 3)], [(-1, 2), (1, -1)]])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
def test_convolutions_are_counted_as_xla_counts_them(groups, stride, padding, dilation):
    if padding in ("SAME", "VALID") and dilation[0] > 1:
        padding = [(1, 1), (1, 1)]
    features = 6 if groups == "batch_group_count" else 3
    image, kernel = shape(4, 13, 10, 6), shape(3, 3, features, 4)
    convolve = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=(stride, stride),
        padding=padding,
        lhs_dilation=(dilation[0],) * 2,
        rhs_dilation=(dilation[1],) * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        **{groups: 2},
    )
    assert product_flops_of(convolve, image, kernel) == exactly(int(xla(convolve, image, kernel)))


def test_complex_products_count_their_real_operations():
    c64 = shape(4, 6, dtype=jnp.complex64), shape(6, 5, dtype=jnp.complex64)
    assert product_flops_of(jnp.matmul, *c64) == exactly(8 * 4 * 6 * 5)


def test_each_row_of_a_ragged_product_meets_one_group():
    sizes = shape(3, dtype=jnp.int32)
    rows = product_flops_of(jax.lax.ragged_dot, shape(12, 5), shape(3, 5, 7), sizes)
    assert rows == exactly(2 * 12 * 5 * 7)

    def weights(lhs, rhs, sizes):
        return jax.grad(lambda r: jax.lax.ragged_dot(lhs, r, sizes).sum())(rhs)

    # Forward as above; the gradient of the weights shares the rows among the groups.
    both = product_flops_of(weights, shape(12, 5), shape(3, 5, 7), sizes)
    assert both == exactly(2 * 2 * 12 * 5 * 7)


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_scans_body_counts_as_often_as_it_runs(length):
    def step(carry, _):
        return jnp.sin(carry @ carry), None

    count = counted(lambda x: jax.lax.scan(step, x, None, length=length)[0], SQUARE)
    assert count.total == exactly(length * PRODUCT)
    assert sum(site.flops for site in count.sites) == length * PRODUCT
    assert not count.notes


def test_scans_in_scans_multiply():
    def inner(carry, _):
        return carry @ carry, None

    def outer(carry, _):
        return jax.lax.scan(inner, carry, None, length=3)[0], None

    count = counted(lambda x: jax.lax.scan(outer, x, None, length=5)[0], SQUARE)
    assert count.total == exactly(15 * PRODUCT)
    (site,) = count.sites
    assert (site.each, site.runs) == (PRODUCT, 15)


def test_a_loop_of_unknown_length_leaves_the_total_open():
    def loop(x, n):
        return jax.lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] @ c[1]), (0, x @ x)
        )[1]

    count = counted(loop, SQUARE, shape(dtype=jnp.int32))
    assert count.total == JaxprFlops(PRODUCT, None, 2 * PRODUCT)
    assert "unknown length" in count.notes[0]
    assert "test_jaxpr_flops.py" in count.notes[0]


def test_a_loop_that_counts_between_literals_is_known():
    def loop(x):
        return jax.lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 3, c[1] @ c[1]), (1, x))[1]

    assert counted(loop, SQUARE).total == exactly(3 * PRODUCT)  # 1, 4, 7


@pytest.mark.parametrize(
    "body",
    [
        lambda c: (c[0] * 3, c[1] @ c[1]),
        lambda c: (c[0] - 1, c[1] @ c[1]),
        lambda c: (c[0] + c[0], c[1] @ c[1]),
    ],
    ids=["multiplies", "counts down", "doubles"],
)
def test_a_loop_that_does_not_count_up_by_a_literal_is_unknown(body):
    def loop(x):
        return jax.lax.while_loop(lambda c: c[0] < 10, body, (1, x))[1]

    assert counted(loop, SQUARE).total.high is None


def test_the_products_of_a_condition_count_once_more_than_the_body():
    def loop(x):
        return jax.lax.while_loop(
            lambda c: (c[1] @ c[1]).sum() < 3, lambda c: (c[0] + 1, c[1] + 1), (0, x)
        )[1]

    total = counted(loop, SQUARE).total
    assert (total.low, total.high, total.nominal) == (0, None, PRODUCT)


def test_a_conditional_is_the_range_over_its_branches():
    def branching(x, flag):
        return jax.lax.cond(flag, lambda x: x @ x @ x @ x, lambda x: x @ x, x)

    count = counted(branching, SQUARE, shape(dtype=jnp.bool_))
    assert count.total == JaxprFlops(PRODUCT, 3 * PRODUCT, 3 * PRODUCT)
    assert sum(site.flops for site in count.sites) == 3 * PRODUCT
    assert "branches of different cost" in count.notes[0]


def test_branches_of_one_cost_leave_nothing_open():
    def branching(x, index):
        return jax.lax.switch(index, [lambda x: x @ x, lambda x: x.T @ x], x)

    count = counted(branching, SQUARE, shape(dtype=jnp.int32))
    assert count.total == exactly(PRODUCT)
    assert not count.notes


def test_what_checkpoint_runs_again_is_told_apart():
    def layer(x, w):
        return jnp.sin(jnp.sin(x @ w) @ w)

    def loss(w, x):
        return jax.checkpoint(layer)(x, w).sum()

    plain = counted(jax.grad(lambda w, x: layer(x, w).sum()), SQUARE, SQUARE)
    saved = counted(jax.grad(loss), SQUARE, SQUARE)
    assert plain.recomputed == exactly(0)
    # Both products run again: the second's result is the argument of a sine.
    assert saved.recomputed == exactly(2 * PRODUCT)
    assert saved.total.low - plain.total.low == 2 * PRODUCT
    assert {site.backward for site in saved.sites if site.recomputed} == {True}


def test_recomputation_in_a_scan_is_multiplied():
    @jax.checkpoint
    def body(carry, _):
        return jnp.sin(jnp.sin(carry @ carry) @ carry), None

    def loss(x):
        return jax.lax.scan(body, x, None, length=7)[0].sum()

    count = counted(jax.grad(loss), SQUARE)
    assert count.recomputed == exactly(7 * 2 * PRODUCT)


def test_a_custom_gradient_counts_what_runs_and_nothing_else():
    @jax.custom_vjp
    def square(x):
        return x @ x

    def forward(x):
        return x @ x, x

    def backward(x, cotangent):
        return (cotangent @ x + x @ cotangent + cotangent @ cotangent,)

    square.defvjp(forward, backward)
    assert counted(square, SQUARE).total == exactly(PRODUCT)
    assert counted(jax.grad(lambda x: square(x).sum()), SQUARE).total == exactly(4 * PRODUCT)

    @jax.custom_jvp
    def twice(x):
        return x @ x

    twice.defjvp(lambda primals, tangents: (primals[0] @ primals[0], tangents[0]))
    assert counted(twice, SQUARE).total == exactly(PRODUCT)


def test_nested_jit_and_vmap_count_once_and_per_element():
    inner = jax.jit(lambda x: x @ x)
    assert counted(lambda x: inner(inner(x)), SQUARE).total == exactly(2 * PRODUCT)
    assert counted(jax.vmap(inner), shape(5, 8, 8)).total == exactly(5 * PRODUCT)


def test_a_shard_maps_body_counts_once_for_each_device():
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    spec = PartitionSpec("data", "model")

    def body(x):
        return x @ x.T

    mapped = functools.partial(
        jax.shard_map, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )(body)
    # Each of eight devices has 4 x 2 and makes 4 x 4 of it.
    assert counted(mapped, SQUARE).total == exactly(8 * 2 * 4 * 2 * 4)


def test_products_that_no_result_needs_are_told_apart():
    def wasteful(x):
        unused = (x @ x) @ x
        del unused
        return x @ x.T

    jaxpr = jax.make_jaxpr(wasteful)(SQUARE)
    count = count_jaxpr(jaxpr)
    assert sum(site.runs for site in count.sites) * PRODUCT == count.total.nominal
    dead = sum(site.dead * site.each for site in count.sites)
    assert dead == count.total.nominal - PRODUCT


def test_products_of_the_same_operands_are_told_apart():
    count = counted(lambda x, y: (x @ y, x @ y, y @ x), SQUARE, SQUARE)
    assert count.total == exactly(3 * PRODUCT)
    assert sum(site.repeated for site in count.sites) == 1


def test_linear_algebra_is_counted_by_the_textbook_that_is_named():
    n = 32
    matrix = shape(n, n)
    cholesky = counted(jnp.linalg.cholesky, matrix)
    assert cholesky.total == exactly(round(n**3 / 3))
    assert set(cholesky.by_kind) == {"linear algebra"}
    assert cholesky.models == ("textbook cholesky: n^3/3",)
    # LU, then two triangular solves with n right-hand sides.
    solve = counted(jnp.linalg.solve, matrix, matrix)
    assert solve.total == exactly(round(n**3 - n**3 / 3) + 2 * n**3)
    assert counted(jnp.linalg.eigh, matrix).total == exactly(9 * n**3)
    # The factorization, and the product that forms Q.
    assert counted(jnp.linalg.qr, matrix).total.low >= round(4 * n**3 / 3)


def test_a_transform_takes_five_n_log_n_and_half_of_it_for_real_numbers():
    full = counted(jnp.fft.fft, shape(3, 64, dtype=jnp.complex64))
    assert full.total == exactly(3 * 5 * 64 * 6)
    assert counted(jnp.fft.rfft, shape(3, 64)).total == exactly(3 * 5 * 64 * 6 // 2)
    assert counted(jnp.fft.irfft, shape(3, 33, dtype=jnp.complex64)).total == exactly(
        3 * 5 * 64 * 6 // 2
    )


def test_what_a_jaxpr_does_not_tell_is_listed_and_never_zero():
    from jax.experimental import pallas as pl

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] @ x_ref[...]

    def step(x):
        out = jax.ShapeDtypeStruct((8, 8), F32)
        for _ in range(2):
            x = pl.pallas_call(kernel, out_shape=out, name="square")(x)
        x = jax.ffi.ffi_call("my_target", out)(x)
        return jax.pure_callback(np.asarray, out, x)

    def scanned(x):
        return jax.lax.scan(lambda c, _: (step(c), None), x, None, length=5)[0]

    count = counted(scanned, SQUARE)
    found = {call.primitive: call for call in count.uncounted}
    assert set(found) == {"pallas_call", "ffi_call", "pure_callback"}
    assert found["pallas_call"].calls == 10
    assert found["ffi_call"].name == "my_target"
    assert found["ffi_call"].shapes == "f32[8,8] -> f32[8,8]"
    assert count.total == exactly(0)


def test_a_primitive_that_is_not_jaxs_is_listed():
    from jax.extend.core import Primitive

    mine = Primitive("mine")
    mine.def_abstract_eval(lambda x: x)
    (call,) = counted(mine.bind, SQUARE).uncounted
    assert call.primitive == "mine"
    assert "does not know" in call.reason


def test_lines_of_python_are_named():
    def here(x):
        return x @ x

    (site,) = counted(here, SQUARE).sites
    assert site.file.endswith("test_jaxpr_flops.py")
    assert site.line == here.__code__.co_firstlineno + 1
    assert counted(here, SQUARE).at(site.file, site.line) == PRODUCT
