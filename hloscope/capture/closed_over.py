"""Which arrays a step closes over, and what its code calls them. Runs in the worker.

The jaxpr holds them as constants or literals, without a name. The functions
that were traced still hold the same objects in closures and globals, so a walk
over what they can see finds the names; where JAX wrapped or converted an array,
equal contents tell.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hloscope.capture import jax_private
from hloscope.capture.abstraction import hlo_dtype
from hloscope.ir.closed_over import ChangedArray, ClosedOver, ClosedOverArray

__all__ = ["find_closed_over"]

_SMALLEST = 1024  # bytes
_MOST_OBJECTS = 20_000
_LARGEST_CHANGED = 1 << 28  # bytes; beyond these the digests take seconds
_MATRIX = 2
_MOST_STEPS = 5  # attributes and keys from a variable to the array


def find_closed_over(function: Callable[..., Any], traced: Any, lowered: Any) -> ClosedOver:
    """The arrays of the jaxpr that are no arguments.

    Args:
        function: What was traced; jitted or not.
        traced: JAX's own ``Traced``.
        lowered: JAX's own ``Lowered`` of it.
    """
    places: dict[int, tuple[str, int] | None] = {}
    arrays: dict[int, Any] = {}
    for value, place in _constants(traced.jaxpr):
        if _bytes(value) >= _SMALLEST:
            arrays.setdefault(id(value), value)
            places[id(value)] = places.get(id(value)) or place
    hoisted: dict[int, list[int]] = {}
    for value, number in jax_private.hoisted_constants(lowered):
        hoisted.setdefault(id(value), []).append(number)
    names = _Names(function)
    unread = 0
    found = []
    for key, value in arrays.items():
        elements = _elements(value)
        unread += elements is None
        place = places[key]
        found.append(
            ClosedOverArray(
                dtype=hlo_dtype(value.dtype),
                dimensions=tuple(int(d) for d in value.shape),
                bytes=_bytes(value),
                digest=_digest(elements) if elements is not None else "",
                names=names.of(value, elements),
                parameters=tuple(hoisted.get(key, ())),
                file=place[0] if place is not None else None,
                line=place[1] if place is not None else None,
                changed=tuple(_changes(elements))
                if elements is not None and elements.nbytes <= _LARGEST_CHANGED
                else (),
            )
        )
    note = f"{unread} of {len(found)} closed-over arrays could not be read" if unread else ""
    return ClosedOver(tuple(found), note)


_Read = Iterator[tuple[Any, tuple[str, int] | None]]


def _constants(closed: Any) -> _Read:
    """Constants and literal arrays of a closed jaxpr and of those inside, with their readers.

    Of several readers the innermost comes first: a jitted function that is
    called with a constant reads it on a line of its own.
    """
    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    yield from ((value, None) for value in closed.consts)
    yield from _read_in(closed.jaxpr, values)


def _read_in(jaxpr: Any, values: Mapping[Any, Any]) -> _Read:
    for equation in jaxpr.eqns:
        given = [_value(variable, values) for variable in equation.invars]
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                plain: Any = getattr(inner, "jaxpr", inner)
                if not hasattr(plain, "eqns") or not hasattr(plain, "invars"):
                    continue
                held = dict(zip(plain.constvars, getattr(inner, "consts", ()), strict=False))
                yield from ((value, None) for value in held.values())
                if len(plain.invars) == len(given):
                    passed = zip(plain.invars, given, strict=True)
                    held.update((inside, value) for inside, value in passed if value is not None)
                yield from _read_in(plain, held)
        for value in given:
            if value is not None:
                yield value, jax_private.place_of(equation)


def _value(variable: Any, values: Mapping[Any, Any]) -> Any | None:
    """The array that a variable is known to stand for."""
    return variable.val if hasattr(variable, "val") else values.get(variable)


def _bytes(value: Any) -> int:
    """Bytes of an array; 0 of what is none, and of random keys, which are no data."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None or jnp.issubdtype(dtype, jax.dtypes.extended):
        return 0
    return int(math.prod(shape)) * int(np.dtype(dtype).itemsize)


def _elements(value: Any) -> np.ndarray[Any, Any] | None:
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _digest(elements: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(elements).tobytes()).hexdigest()


def _changes(elements: np.ndarray[Any, Any]) -> Iterator[ChangedArray]:
    """What XLA often makes of an array while compiling, ahead of a product."""
    forms = {"": elements}
    if elements.ndim >= _MATRIX:
        forms["transposed"] = np.swapaxes(elements, -1, -2)
    for change, form in forms.items():
        if change:
            yield ChangedArray(change, hlo_dtype(form.dtype), _digest(form))
        if form.dtype == np.float32:
            rounded = form.astype(jnp.bfloat16)
            how = f"{change} and rounded to bf16" if change else "rounded to bf16"
            yield ChangedArray(how, "bf16", _digest(rounded))
            # A CPU widens bfloat16 operands again, and XLA folds that as well.
            yield ChangedArray(f"{how} and back", "f32", _digest(rounded.astype(np.float32)))


class _Names:
    """Names of the arrays that a function can see."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._by_id: dict[int, list[str]] = {}
        self._by_shape: dict[tuple[int, ...], list[tuple[str, Any]]] = {}
        self._seen: dict[int, Any] = {}  # holds what it saw, so that no id is used twice
        self._function(function)

    def of(self, value: Any, elements: np.ndarray[Any, Any] | None) -> tuple[str, ...]:
        """Names of the same object, else of arrays with equal contents."""
        same = self._by_id.get(id(value))
        if same:
            return tuple(same)
        if elements is None:
            return ()
        found = []
        for name, other in self._by_shape.get(tuple(value.shape), ()):
            theirs = _elements(other)
            if theirs is not None and np.array_equal(
                theirs.astype(elements.dtype),
                elements,
                equal_nan=elements.dtype.kind == "f",
            ):
                found.append(name)
        return tuple(found)

    def _function(self, function: Any) -> None:
        """What a function's code reads: its closure, and the globals that it names."""
        if self._is_seen(function):
            return
        if isinstance(function, functools.partial):
            self._function(function.func)
            for number, value in enumerate(function.args):
                self._value(f"args[{number}]", value, 0)
            for name, value in function.keywords.items():
                self._value(name, value, 0)
            return
        if isinstance(function, types.MethodType):
            self._value("self", function.__self__, 0)
            self._function(function.__func__)
            return
        if not isinstance(function, types.FunctionType):
            inner = getattr(function, "__wrapped__", None)
            if inner is not None:
                self._function(inner)
            elif not isinstance(function, type | types.BuiltinFunctionType):
                call = inspect.getattr_static(type(function), "__call__", None)
                self._value("self", function, 0)
                if isinstance(call, types.FunctionType):
                    self._function(call)
            return
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=False
        ):
            try:
                self._value(name, cell.cell_contents, 0)
            except ValueError:  # the cell is still empty
                continue
        for name, value in (function.__kwdefaults__ or {}).items():
            self._value(name, value, 0)
        for value in function.__defaults__ or ():
            self._value(f"a default of {function.__name__}", value, 0)
        for code in _codes(function.__code__):
            for name in code.co_names:
                if name in function.__globals__:
                    value = function.__globals__[name]
                    if isinstance(value, types.ModuleType):
                        self._module(name, value, code.co_names)
                    else:
                        self._value(name, value, 0)
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            self._function(wrapped)

    def _module(self, name: str, module: types.ModuleType, attributes: tuple[str, ...]) -> None:
        """What the code may take from a module that is not a library's."""
        if (module.__name__ or "").partition(".")[0] in _LIBRARIES:
            return
        for attribute in attributes:
            if attribute in vars(module):
                self._value(f"{name}.{attribute}", vars(module)[attribute], 0)

    def _value(self, name: str, value: Any, steps: int) -> None:
        if isinstance(value, jax.Array | np.ndarray):
            if isinstance(value, jax.core.Tracer):
                return
            names = self._by_id.setdefault(id(value), [])
            if name not in names:
                names.append(name)
                self._by_shape.setdefault(tuple(value.shape), []).append((name, value))
            self._seen[id(value)] = value
            return
        if steps > _MOST_STEPS or isinstance(value, str | bytes | int | float | type | None):
            return
        if isinstance(value, types.FunctionType | types.MethodType | functools.partial) or hasattr(
            value, "__wrapped__"
        ):
            if (getattr(value, "__module__", "") or "").partition(".")[0] not in _LIBRARIES:
                self._function(value)
            return
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
            return
        if self._is_seen(value):
            return
        if isinstance(value, dict):
            for key, item in value.items():
                self._value(f"{name}[{key!r}]", item, steps + 1)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            for key in value._fields:
                self._value(f"{name}.{key}", getattr(value, key), steps + 1)
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                self._value(f"{name}[{number}]", item, steps + 1)
        else:
            for key, item in _attributes(value):
                held = name if key in _HOLDERS else f"{name}.{key}"
                self._value(held, item, steps + 1)

    def _is_seen(self, value: Any) -> bool:
        if id(value) in self._seen or len(self._seen) >= _MOST_OBJECTS:
            return True
        self._seen[id(value)] = value
        return False


_HOLDERS = ("_raw_value", "raw_value")
"""Where flax's variables keep their array; the code calls it by the variable's name."""


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, in its dictionary and in its slots."""
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                yield slot, getattr(value, slot)


_LIBRARIES = frozenset(("jax", "jaxlib", "numpy", "flax", "optax", "functools", "builtins"))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
