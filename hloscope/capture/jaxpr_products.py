"""What one equation of a jaxpr costs that is a product itself, by its primitive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import numpy as np

__all__ = ["NO_PRODUCTS", "PRODUCTS", "Product"]


@dataclass(frozen=True, slots=True)
class Product:
    """FLOPs of one execution of one equation.

    Attributes:
        kind: As in :class:`hloscope.ir.jaxpr_count.JaxprSite`.
        flops: A multiply-add is two.
        model: Name of the textbook count that it rests on; empty where the
            arithmetic leaves no choice.
    """

    kind: str
    flops: int
    model: str = ""


def _dot_general(equation: Any) -> Product:
    """``dot_general``: twice the result's elements times the contracted sizes."""
    (contracting, _), _ = equation.params["dimension_numbers"]
    lhs, result = equation.invars[0].aval, equation.outvars[0].aval
    depth = prod(lhs.shape[axis] for axis in contracting)
    return Product("matmul", _multiply_adds(result.dtype) * depth * prod(result.shape))


def _ragged_dot(equation: Any) -> Product:
    """``ragged_dot_general``: each row meets one group, so the groups share the ragged size."""
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (contracting, _), _ = numbers.dot_dimension_numbers
    lhs, _, sizes = (variable.aval for variable in equation.invars[:3])
    result = equation.outvars[0].aval
    flops = _multiply_adds(result.dtype) * prod(result.shape)
    flops *= prod(lhs.shape[axis] for axis in contracting)
    if set(numbers.lhs_ragged_dimensions) & set(contracting):
        flops //= max(sizes.shape[-1], 1)
    return Product("matmul", flops)


def _scaled_matmul(equation: Any) -> Product:
    """``scaled_matmul`` and ``scaled_dot``: both sides contract their last dimension."""
    lhs, result = equation.invars[0].aval, equation.outvars[0].aval
    return Product("matmul", 2 * lhs.shape[-1] * prod(result.shape))


def _convolution(equation: Any) -> Product:
    """``conv_general_dilated``: the pairs of input and kernel elements that meet.

    Positions in the padding, and in the holes that dilation makes, are left out.
    """
    params = equation.params
    numbers = params["dimension_numbers"]
    lhs, rhs = (variable.aval.shape for variable in equation.invars[:2])
    result = equation.outvars[0].aval
    out = result.shape
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
    # The kernel's input features are those of one group already.
    features = rhs[numbers.rhs_spec[1]] * out[numbers.out_spec[1]]
    batch = out[numbers.out_spec[0]]
    return Product("convolution", _multiply_adds(result.dtype) * pairs * batch * features)


def _meeting_pairs(
    *, size: int, kernel: int, out: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> int:
    reach = (size - 1) * lhs_dilation + 1
    starts = np.arange(out, dtype=np.int64) * stride - low
    pairs = 0
    for tap in range(kernel):
        places = starts + tap * rhs_dilation
        inside = (places >= 0) & (places < reach) & (places % lhs_dilation == 0)
        pairs += int(np.count_nonzero(inside))
    return pairs


def _multiply_adds(dtype: Any) -> int:
    """FLOPs of one multiply-add: two, and eight of complex numbers."""
    return 8 if np.issubdtype(dtype, np.complexfloating) else 2


def _attention(*, backward: bool) -> Callable[[Any], Product]:
    """Attention that is asked for as one operation, dense: every query meets every key.

    Two products forward, and the four that its gradients take.
    """

    def count(equation: Any) -> Product:
        query, key, value = (variable.aval.shape for variable in equation.invars[:3])
        # JAX's layouts: 0 is batch, length, heads, size; 1 is batch, heads, length, size.
        length, heads = (1, 2) if equation.params.get("layout", 0) == 0 else (2, 1)
        pairs = query[0] * query[heads] * query[length] * key[length]
        flops = 2 * pairs * (query[3] + value[3])
        return Product("attention", 2 * flops if backward else flops, "dense attention")

    return count


def _factorization(name: str, flops: Callable[[int, int], float]) -> Callable[[Any], Product]:
    """A count by the rows and columns of the matrices in a stack of them."""

    def count(equation: Any) -> Product:
        *batch, rows, columns = equation.invars[0].aval.shape
        # The formulas are for at least as many rows as columns.
        long, short = max(rows, columns), min(rows, columns)
        return Product("linear algebra", prod(batch) * round(flops(long, short)), name)

    return count


def _eigh(equation: Any) -> Product:
    return _factorization("textbook eigh: 9 n^3", lambda n, _: 9 * n**3)(equation)


def _svd(equation: Any) -> Product:
    if equation.params.get("compute_uv", True):
        return _factorization(
            "textbook svd: 4 m^2 n + 22 n^3", lambda m, n: 4 * m * m * n + 22 * n**3
        )(equation)
    return _factorization(
        "textbook svd, values only: 4 m n^2 - 4 n^3/3", lambda m, n: 4 * m * n * n - 4 * n**3 / 3
    )(equation)


def _triangular_solve(equation: Any) -> Product:
    """Half the multiply-adds of a product with the whole matrix."""
    matrix, rhs = (variable.aval.shape for variable in equation.invars[:2])
    return Product(
        "linear algebra", matrix[-1] * prod(rhs), "textbook triangular solve: n elements(b)"
    )


def _fft(equation: Any) -> Product:
    """Five N log2 N for each transform, half of it where one side is real."""
    lengths = equation.params["fft_lengths"]
    points = prod(lengths)
    operand, result = equation.invars[0].aval, equation.outvars[0].aval
    real = not all(np.issubdtype(a.dtype, np.complexfloating) for a in (operand, result))
    full = max(prod(operand.shape), prod(result.shape)) if real else prod(operand.shape)
    transforms = full // max(points, 1)
    flops = 5 * points * log2(points) * transforms if points else 0.0
    return Product("fft", round(flops / 2 if real else flops), "textbook fft: 5 N log2 N")


_QR = _factorization("textbook qr: 2 m n^2 - 2 n^3/3", lambda m, n: 2 * m * n * n - 2 * n**3 / 3)

PRODUCTS: Mapping[str, Callable[[Any], Product]] = {
    "dot_general": _dot_general,
    "ragged_dot_general": _ragged_dot,
    "scaled_matmul": _scaled_matmul,
    "scaled_matmul_wrapper": _scaled_matmul,
    "scaled_dot": _scaled_matmul,
    "conv_general_dilated": _convolution,
    "cholesky": _factorization("textbook cholesky: n^3/3", lambda n, _: n**3 / 3),
    "lu": _factorization("textbook lu: m n^2 - n^3/3", lambda m, n: m * n * n - n**3 / 3),
    "qr": _QR,
    "geqrf": _QR,
    "geqp3": _QR,
    "householder_product": _QR,
    "eigh": _eigh,
    "eig": _factorization("textbook eig: 25 n^3", lambda n, _: 25 * n**3),
    "svd": _svd,
    "schur": _factorization("textbook schur: 25 n^3", lambda n, _: 25 * n**3),
    "hessenberg": _factorization("textbook hessenberg: 10 n^3/3", lambda n, _: 10 * n**3 / 3),
    "tridiagonal": _factorization("textbook tridiagonal: 4 n^3/3", lambda n, _: 4 * n**3 / 3),
    "triangular_solve": _triangular_solve,
    "fft": _fft,
    "dot_product_attention_fwd_wrapper": _attention(backward=False),
    "dot_product_attention_fp8_fwd_wrapper": _attention(backward=False),
    "dot_product_attention_bwd_wrapper": _attention(backward=True),
    "dot_product_attention_fp8_bwd_wrapper": _attention(backward=True),
}
"""Primitives that are products, with the count of each."""

NO_PRODUCTS = frozenset(
    """
    all_gather_done all_gather_invariant all_gather_reduced all_gather_reduced_start
    all_gather_start all_to_all_done all_to_all_start broadcast_to check create_linear dce_sink
    debug_callback debug_print dim_as_value dimension_size empty from_edtype inspect_sharding
    iota_2x32_shape layout_constraint lu_pivots_to_permutation mulhi optimization_barrier
    pbroadcast pbroadcast_done pbroadcast_dynamic pbroadcast_start philox2x32 philox4x32 pin
    platform_index ppermute_done ppermute_start precv preduced psend psum_done psum_invariant
    psum_invariant_start psum_start pvary random_clone random_unwrap random_wrap reduce_scatter
    reduce_scatter_done reduce_scatter_start reduced_vary_cast reduced_vary_cast_p relayout
    reshard scatter-sub shape_assertion split stack stage threefry4x32 tie tile to_edtype unpin
    unreachable unreduced_pmax unreduced_pmin unreduced_psum unreduced_psum_start
    unreduced_reduce_scatter unreduced_reduce_scatter_start unstack vary_unreduced_cast
    vary_unreduced_cast_p with_memory_space_constraint
    """.split()  # noqa: SIM905
)
"""Primitives of JAX's own without products that its public list leaves out."""
