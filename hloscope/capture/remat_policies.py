"""What a policy of ``jax.checkpoint`` says of names and products.

A policy is a function that JAX asks of each equation. The names that it knows
stand in what it holds; what it does with one of them it is asked itself, so that
policies of the user's own are read like JAX's. Runs in the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from hloscope.capture import jax_private
from hloscope.ir.named_points import RematPolicy

__all__ = ["read_policy"]

_DEEPEST = 4
_NOBODYS = "no step has a value of this name"
_KEEPS, _OFFLOADS, _DROPS = "keeps", "offloads", "drops"


def read_policy(policy: Any) -> RematPolicy:
    """Take a policy apart.

    Args:
        policy: What the equation of a ``jax.checkpoint`` holds; ``None`` keeps nothing.
    """
    words = _spelled(policy)
    if policy is None:
        return RematPolicy(words)
    asked = {name: _answer(policy, _naming(), name=name) for name in sorted(_held(policy))}
    other, _ = _answer(policy, _naming(), name=_NOBODYS)
    product, host = _answer(policy, _product())
    hosts = {kind for fate, kind in asked.values() if fate == _OFFLOADS} | ({host} - {""})

    def those(fate: str) -> tuple[str, ...]:
        # What it says of any name at all it does not say of this one.
        return tuple(n for n, (is_, _) in asked.items() if is_ == fate and fate != other)

    return RematPolicy(
        words,
        saves=those(_KEEPS),
        offloads=those(_OFFLOADS),
        drops=those(_DROPS),
        saves_products=product == _KEEPS,
        offloads_products=product == _OFFLOADS,
        host=", ".join(sorted(hosts)),
    )


def _answer(policy: Any, equation: Any, **params: Any) -> tuple[str, str]:
    """What a policy says of an equation, and to which memory it offloads."""
    avals = [variable.aval for variable in equation.invars]
    try:
        said = policy(equation.primitive, *avals, **{**equation.params, **params})
    except Exception:  # a function of the user's: whatever it cannot answer it does not say
        return "", ""
    host = jax_private.offload_destination(said)
    if host is not None:
        return _OFFLOADS, host
    return (_KEEPS if jax_private.is_saveable(said) else _DROPS), ""


@cache
def _naming() -> Any:
    return jax.make_jaxpr(lambda x: checkpoint_name(x, "x"))(0.0).eqns[0]


@cache
def _product() -> Any:
    return jax.make_jaxpr(jnp.dot)(jnp.ones((2, 2)), jnp.ones((2, 2))).eqns[0]


def _held(policy: Any, depth: int = 0) -> Iterator[str]:
    """Every text that a policy, or one that it is made of, could compare a name with."""
    if depth > _DEEPEST:
        return
    for value in jax_private.policy_parts(policy, constants=True)[1]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, frozenset | set | tuple | list):
            yield from (name for name in value if isinstance(name, str))
            for each in value:
                if callable(each):
                    yield from _held(each, depth + 1)
        elif callable(value):
            yield from _held(value, depth + 1)


def _spelled(policy: Any, depth: int = 0) -> str:
    """A policy as the code that made it would spell it.

    JAX makes policies as objects in some versions and as functions that close
    over their names in others.
    """
    if policy is None:
        return "nothing_saveable"
    kind, held = jax_private.policy_parts(policy)
    if kind == "DotsSaveable":
        return "dots_with_no_batch_dims_saveable" if True in held else "dots_saveable"
    words = [text for value in held if (text := _words(value, depth))]
    name = _SPELLED.get(kind, kind)
    return f"{name}({'; '.join(words)})" if words else name


def _words(held: Any, depth: int) -> str:
    """The names that a policy holds, or the policies that it joins."""
    if isinstance(held, frozenset | set | tuple | list):
        if all(isinstance(name, str) for name in held):
            return ", ".join(sorted(held))
        policies: Iterator[Callable[..., Any]] = (each for each in held if callable(each))
        return "; ".join(_spelled(each, depth + 1) for each in policies if depth < _DEEPEST)
    return _spelled(held, depth + 1) if callable(held) and depth < _DEEPEST else ""


_SPELLED = {
    "SaveAnyNamesButThese": "save_any_names_but_these",
    "SaveOnlyTheseNames": "save_only_these_names",
}
