"""Analyses: plain functions whose types say what they need and what they give."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, Union

__all__ = ["ANALYSES", "Analysis", "AnalysisRegistry", "Need", "analysis", "describe", "needs_of"]

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Need:
    """One parameter of an analysis or a rule.

    Attributes:
        name: The parameter's name.
        type: What must be passed for it.
        optional: Whether ``None`` is passed when it is unavailable, which is
            what a parameter annotated ``T | None`` asks for.
    """

    name: str
    type: type
    optional: bool


@dataclass(frozen=True, slots=True)
class Analysis:
    """A registered function with its types resolved.

    Attributes:
        name: The function's name.
        function: What is called with the needs, by keyword.
        needs: What it takes.
        gives: The type that it returns.
    """

    name: str
    function: Callable[..., Any]
    needs: tuple[Need, ...]
    gives: type


class AnalysisRegistry:
    """Analyses by the type that they give.

    Type hints are resolved when a type is first asked for, not at decoration,
    so that analyses in different files may name each other's types.
    """

    def __init__(self) -> None:
        self._unresolved: list[Callable[..., Any]] = []
        self._by_type: dict[type, Analysis] = {}

    def register(self, function: AnyFunction) -> AnyFunction:
        """Take a function as the analysis that gives its return type.

        Returns:
            The function itself, which tests may call directly.
        """
        self._unresolved.append(function)
        return function

    def provider(self, wanted: type) -> Analysis | None:
        """The analysis that gives ``wanted``, if there is one.

        Raises:
            TypeError: A registered function lacks a usable type hint, or two
                give the same type.
        """
        while self._unresolved:
            found = _resolve(self._unresolved[-1])
            other = self._by_type.get(found.gives)
            if other is not None:
                raise TypeError(
                    f"{found.name} and {other.name} both give {found.gives.__qualname__}; "
                    "an analysis is found by its type, so each type needs one provider"
                )
            self._by_type[found.gives] = found
            self._unresolved.pop()
        return self._by_type.get(wanted)


ANALYSES = AnalysisRegistry()
"""The analyses of hloscope itself and of what a user registers."""


def analysis(function: AnyFunction) -> AnyFunction:
    """Register a function as the analysis that gives its return type.

    Its parameters say by type what it needs, for example
    ``def trip_counts(module: Module) -> TripCounts``.
    """
    return ANALYSES.register(function)


def needs_of(function: Callable[..., Any]) -> tuple[Need, ...]:
    """What a function's parameters ask for.

    Raises:
        TypeError: A parameter has no annotation, or one that is neither a
            class nor a class with ``None``.
    """
    hints = _hints(function)
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    needs = []
    for name in names:
        if name not in hints:
            raise TypeError(f"{_where(function)}: parameter {name} needs a type annotation")
        wanted, optional = _split_optional(hints[name])
        if not isinstance(wanted, type):
            raise TypeError(
                f"{_where(function)}: parameter {name} is annotated {hints[name]!r}; "
                "needs are found by class, so name one class, or one class | None"
            )
        needs.append(Need(name, wanted, optional))
    return tuple(needs)


def describe(wanted: type) -> str:
    """A type's name as words: ``TripCounts`` becomes ``trip counts``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", wanted.__name__).lower()


def _resolve(function: Callable[..., Any]) -> Analysis:
    gives = _hints(function).get("return")
    if not isinstance(gives, type) or gives is type(None):
        raise TypeError(
            f"{_where(function)}: the return annotation must be the class that it gives, "
            f"not {gives!r}"
        )
    return Analysis(function.__name__, function, needs_of(function), gives)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise TypeError(
            f"{_where(function)}: {error}; import it at run time, not under TYPE_CHECKING"
        ) from error


def _split_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        if len(members) == 1:
            return members[0], True
    return hint, False


def _where(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
