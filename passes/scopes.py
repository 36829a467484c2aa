"""The scopes that JAX writes into an op_name, without what JAX adds to the user's own."""

from __future__ import annotations

import re

__all__ = ["collapse_scope"]

_TRANSFORM = re.compile(r"\w+\((.*)\)")
_STRUCTURE = re.compile(
    r"(while|body|cond|scan|closed_call|core_call|eval_jaxpr|checkpoint|remat2?|rematted_computation"
    r"|custom_(jvp|vjp)_call\w*|shard_map|pjit|branch_\d+_fun|)"
)


def collapse_scope(op_name: str, depth: int) -> str:
    """The modules that an operation stands in, without what JAX and its transforms add.

    ``jit(step)/transpose(jvp(down_0))/attention/dot_general`` is
    ``down_0/attention``: forward and backward of one module are one scope.

    Args:
        op_name: JAX's name of the operation; of several joined ones the first counts.
        depth: How many parts to keep at most, from the outside.
    """
    parts = _split(op_name.split(";")[0])
    named = []
    # First stands the jitted function (before JAX 0.7 its `main`, too), last the primitive.
    first = 2 if parts[1:2] == ["jit(main)"] else 1
    for part in parts[first:-1]:
        inner = part
        while (match := _TRANSFORM.fullmatch(inner)) is not None:
            inner = match[1]
        named += [piece for piece in _split(inner) if not _STRUCTURE.fullmatch(piece)]
    return "/".join(named[:depth])


def _split(scope: str) -> list[str]:
    """Parts between slashes that stand outside brackets."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(scope):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "/" and depth <= 0:
            parts.append(scope[start:place])
            start = place + 1
    return [*parts, scope[start:]]
