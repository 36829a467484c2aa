"""Small random JAX functions, to hold readers against XLA on programs nobody chose."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["random_program"]

Array = Any
Operation = Callable[[random.Random, list[Array]], Array]


def _square(values: list[Array], rng: random.Random) -> Array:
    """Some rank-2 float array of the program."""
    value = rng.choice(values)
    return value.astype(rng.choice([jnp.float32, jnp.bfloat16, jnp.float16]))


def _dot(rng: random.Random, values: list[Array]) -> Array:
    return _square(values, rng) @ _square(values, rng).T.astype(jnp.float32)


def _elementwise(rng: random.Random, values: list[Array]) -> Array:
    function = rng.choice([jnp.sin, jnp.exp, jnp.tanh, jnp.abs, jnp.floor, lax.rsqrt, jax.nn.gelu])
    return function(_square(values, rng))


def _binary(rng: random.Random, values: list[Array]) -> Array:
    function = rng.choice([jnp.add, jnp.multiply, jnp.subtract, jnp.maximum, jnp.arctan2])
    return function(rng.choice(values), rng.choice(values))


def _convert(rng: random.Random, values: list[Array]) -> Array:
    dtypes = [jnp.bfloat16, jnp.int8, jnp.uint32, jnp.float8_e4m3fn, jnp.float16, jnp.int4]
    return rng.choice(values).astype(rng.choice(dtypes)).astype(jnp.float32)


def _reduce(rng: random.Random, values: list[Array]) -> Array:
    function = rng.choice([jnp.sum, jnp.max, jnp.prod, jnp.argmax, jnp.cumsum])
    value = _square(values, rng)
    reduced = function(value, axis=rng.choice([0, 1]))
    return jnp.broadcast_to(reduced, value.shape).astype(jnp.float32)


def _move(rng: random.Random, values: list[Array]) -> Array:
    value = _square(values, rng)
    return rng.choice(
        [
            lambda: value.T,
            lambda: jnp.roll(value, 1, axis=0),
            lambda: jnp.flip(value, 1),
            lambda: jnp.concatenate([value[:2], value[2:]], axis=0),
            lambda: jnp.pad(value, ((1, 0), (0, 1)))[1:, :-1],
            lambda: value.at[1:3].set(0.5),
            lambda: value[jnp.array([3, 1, 2, 0, 0, 1, 2, 3])],
            lambda: jnp.sort(value, axis=1),
        ]
    )()


def _loop(rng: random.Random, values: list[Array]) -> Array:
    value = _square(values, rng).astype(jnp.float32)
    length = rng.randint(2, 9)

    def body(carry: Array, _: Any) -> tuple[Array, Array]:
        return jnp.sin(carry) @ carry.T, carry[0]

    carry, rows = lax.scan(body, value, None, length=length)
    return carry + rows.sum()


def _branch(rng: random.Random, values: list[Array]) -> Array:
    value = _square(values, rng)
    return lax.cond(value[0, 0] > 0, lambda v: v * 2, lambda v: v @ v.T, value)


def _convolve(rng: random.Random, values: list[Array]) -> Array:
    value = _square(values, rng).astype(jnp.float32)
    strides = rng.choice([(1,), (2,)])
    layout = ("NWC", "WIO", "NWC")
    kernel = jnp.ones((3, 8, 8))
    result = lax.conv_general_dilated(
        value[None], kernel, strides, "SAME", dimension_numbers=layout
    )
    return jnp.broadcast_to(result[0, :1], value.shape)


def _random_bits(rng: random.Random, values: list[Array]) -> Array:
    return jax.random.normal(jax.random.key(rng.randint(0, 9)), rng.choice(values).shape)


_OPERATIONS: list[Operation] = [
    _dot,
    _elementwise,
    _binary,
    _convert,
    _reduce,
    _move,
    _loop,
    _branch,
    _convolve,
    _random_bits,
]


def random_program(seed: int) -> tuple[Callable[..., Any], tuple[Array, ...], tuple[int, ...]]:
    """A function over 8x8 arrays, its arguments, and the arguments to donate."""
    rng = random.Random(seed)
    arguments = tuple(
        jax.ShapeDtypeStruct((8, 8), rng.choice([jnp.float32, jnp.bfloat16]))
        for _ in range(rng.randint(1, 3))
    )

    def function(*inputs: Array) -> dict[str, Array]:
        step = random.Random(seed + 1)
        values = list(inputs)
        for _ in range(step.randint(1, 8)):
            values.append(step.choice(_OPERATIONS)(step, values))
        return {f"out{k}": value for k, value in enumerate(values[-2:])}

    if rng.random() < 0.3:

        def total(*inputs: Array) -> Array:
            return sum(value.astype(jnp.float32).sum() for value in function(*inputs).values())

        return jax.grad(total), arguments, ()
    return function, arguments, (0,) if rng.random() < 0.5 else ()
