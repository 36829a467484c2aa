"""FLOP models that users bring for custom calls of their own.

A model is a function of the call. It is registered by a decorator, in a script
that uses hloscope's Python interface or in a module that a package names as an
entry point, and is asked before hloscope's own models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import entry_points
from math import isfinite
from typing import TypeVar

from hloscope.ir import Instruction
from hloscope.passes.flops.counts import Count, Kind, Unmodelled
from hloscope.pipeline.findings import Basis

__all__ = ["ENTRY_POINTS", "load_entry_points", "read_registered", "register_flop_model"]

ENTRY_POINTS = "hloscope.flop_models"
"""Group of the entry points that name modules with models."""

Model = Callable[[Instruction], object]
_Given = TypeVar("_Given", bound=Model)


@dataclass(frozen=True, slots=True)
class _Registered:
    target: str
    op_name: str
    name: str
    function: Model


_MODELS: list[_Registered] = []


def register_flop_model(
    target: str, *, op_name: str = "*", name: str = ""
) -> Callable[[_Given], _Given]:
    """Decorate a function as the model of some custom calls.

    The function takes the :class:`~hloscope.ir.Instruction` and returns the
    FLOPs of one execution (a multiply-add is two), or a :class:`Count` that
    says more, or ``None`` where it has nothing to say of this call; then the
    next model is asked. Of several the one registered last comes first.

    A function that raises, or returns anything else, makes the call unknown,
    with the reason.

    Args:
        target: Pattern of the ``custom_call_target``, with ``*`` and ``?``.
        op_name: Pattern of the op_name, to tell calls of one target apart:
            every Pallas kernel for GPUs has the same one.
        name: What reports call the model; the function's own name if empty.
    """

    def register(function: _Given) -> _Given:
        title = name or getattr(function, "__name__", type(function).__name__)
        _MODELS.append(_Registered(target, op_name, title, function))
        return function

    return register


@cache
def load_entry_points() -> tuple[str, ...]:
    """Import what installed packages name as entry points, once a process.

    Returns:
        What went wrong with those that could not be imported.
    """
    complaints = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # code of other people may raise anything
            complaints.append(f"entry point {point.name} failed: {_described(error)}")
    return tuple(complaints)


def read_registered(instruction: Instruction) -> Count | Unmodelled | None:
    """Ask the registered models; ``None`` where none of them speaks for the call."""
    load_entry_points()
    target = instruction.custom_call_target or ""
    for model in reversed(_MODELS):
        if not fnmatchcase(target, model.target):
            continue
        if model.op_name != "*" and not fnmatchcase(instruction.op_name, model.op_name):
            continue
        try:
            answer = model.function(instruction)
        except Exception as error:  # as above
            return Unmodelled(f"the model {model.name} failed: {_described(error)}")
        if answer is not None:
            return _checked(answer, model)
    return None


def _checked(answer: object, model: _Registered) -> Count | Unmodelled:
    if isinstance(answer, Count):
        if answer.flops is None:
            return Unmodelled(answer.note or f"the model {model.name} does not know")
        whole = _whole(answer.flops)
        if whole is not None and _whole(answer.transcendentals) is not None:
            return answer
    else:
        whole = _whole(answer)
        if whole is not None:
            return Count(Kind.KERNEL, whole, Basis.MODELLED, model.name)
    return Unmodelled(f"the model {model.name} returned {_short(answer)}, which is no FLOPs")


def _whole(number: object) -> int | None:
    """A number of FLOPs as an integer; ``None`` if it is no such number."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if number < 0 or not isfinite(number):
        return None
    return round(number)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _short(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= 60 else f"{text[:57]}..."
