"""FLOPs of the matrix products and convolutions of a traced function.

Two for each multiply-add. A convolution counts only the pairs of input and
kernel elements that meet: positions in the padding, or in the holes that
dilation makes, are left out.
"""

import math
from typing import Any

import jax
from jax.extend import core


def matmul_flops(function: Any, *args: Any) -> int:
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
    for place in range(len(params["window_strides"])):
        low, _ = params["padding"][place]
        pairs *= _meeting_pairs(
            size=lhs[numbers.lhs_spec[2 + place]],
            kernel=rhs[numbers.rhs_spec[2 + place]],
            out=out[numbers.out_spec[2 + place]],
            stride=params["window_strides"][place],
            low=low,
            lhs_dilation=params["lhs_dilation"][place],
            rhs_dilation=params["rhs_dilation"][place],
        )
    batch, features = out[numbers.out_spec[0]], out[numbers.out_spec[1]]
    depth = rhs[numbers.rhs_spec[1]]
    # A batch group count contracts over its share of the batch: `out` already
    # holds the smaller batch.
    return 2 * pairs * batch * features * depth


def _meeting_pairs(
    *, size: int, kernel: int, out: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> int:
    reach = (size - 1) * lhs_dilation + 1
    pairs = 0
    for tap in range(kernel):
        for position in range(out):
            place = position * stride + tap * rhs_dilation - low
            pairs += 0 <= place < reach and place % lhs_dilation == 0
    return pairs
