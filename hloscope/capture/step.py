"""What the user wants looked at: a function with the arguments it will be called with.

This file imports no JAX, so that a model can describe its step and a test can
build one without paying for the import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hloscope.ir.signature import Role

__all__ = ["Step"]


@dataclass(frozen=True)
class Step:
    """One training (or inference) step and its arguments.

    A user's ``file.py:attr`` may be a ``Step``, a ``(fn, args)`` tuple, or a
    function that takes nothing or ``devices`` and returns either.

    Attributes:
        fn: The step. A plain function is jitted with ``donate``; a function
            that is jitted already is used as it is, with its own donation.
        args: Positional arguments: arrays, ``jax.ShapeDtypeStruct`` or pytrees
            of them. Only shapes, dtypes and shardings are read.
        kwargs: Keyword arguments, likewise.
        donate: Numbers of the positional arguments to donate; only for a plain
            function.
        static: Numbers of the positional arguments that are static; only for a
            plain function.
        roles: What each argument is, by position or by name. An argument that
            is not named gets its role from its name and dtype.
        out_shardings: Passed to ``jax.jit`` for a plain function, if given.
        name: How reports call it; the function's name otherwise.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    donate: tuple[int, ...] = ()
    static: tuple[int, ...] = ()
    roles: Mapping[int | str, Role] = field(default_factory=dict)
    out_shardings: Any = None
    name: str | None = None
