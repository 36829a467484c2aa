"""Where JAX widens a value because a wider, strongly typed one meets it. Runs in the worker.

A jaxpr spells a promotion as it spells a cast, ``convert_element_type``. What
tells them apart is who asked: the traceback of a promotion enters JAX through
an operator or a function like ``jnp.add``, that of a cast through ``astype`` or
``jnp.asarray``. JAX keeps no such frames inside its own jitted functions
(``jnp.where``, ``jnp.clip``); there a conversion is a promotion where the
widened value meets one that does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from hloscope.capture import jax_private
from hloscope.capture.abstraction import hlo_dtype
from hloscope.capture.jaxpr_loops import static_trip_count
from hloscope.ir.jaxpr_promotions import JaxprPromotion, JaxprPromotions

__all__ = ["find_promotions"]

_MEETINGS = frozenset(
    """
    add add_any sub mul div rem max min pow atan2 nextafter eq ne lt le gt ge select_n clamp
    concatenate dynamic_update_slice scatter scatter-add scatter_add scatter-mul scatter_mul pad
    dot_general conv_general_dilated
    """.split()  # noqa: SIM905
)
"""Primitives that want their operands in one type."""

_CASTS = frozenset({"astype", "_astype", "convert_element_type", "asarray", "array", "full_like"})
"""Functions of JAX by which a program asks for a type."""

_MOVES = frozenset(
    {"broadcast_in_dim", "reshape", "squeeze", "transpose", "expand_dims", "copy", "rev"}
)
_MOST_STEPS = 200


def find_promotions(jaxpr: Any) -> JaxprPromotions:
    """The promotions of a closed jaxpr and of all that it holds.

    Listed are floating-point values that become a wider floating-point type and
    narrower integers that become a 64-bit type, because an operand of the wider
    type meets them in one operation. JAX lets a weakly typed number (a Python
    one) do so only to an integer array.

    Args:
        jaxpr: What ``jax.jit(f).trace(...).jaxpr`` gives.
    """
    plain = _plain(jaxpr)
    known = {
        **dict.fromkeys(plain.invars, "argument"),
        **dict.fromkeys(plain.constvars, "closed over"),
    }
    found: dict[tuple[object, ...], JaxprPromotion] = {}
    for row in _walk(plain, _Around(handed_in=known)):
        key = (row.file, row.line, row.operation, row.source, row.result, row.partner)
        other = found.get(key)
        found[key] = row if other is None else _together(other, row)
    return JaxprPromotions(tuple(sorted(found.values(), key=lambda row: -row.elements)))


def _together(one: JaxprPromotion, other: JaxprPromotion) -> JaxprPromotion:
    return replace(
        max(one, other, key=lambda row: prod(row.dimensions)),
        count=one.count + other.count,
        elements=one.elements + other.elements,
        exact=one.exact and other.exact,
    )


@dataclass(frozen=True, slots=True)
class _Around:
    """What holds for all equations of a jaxpr by where it stands."""

    times: int = 1
    exact: bool = True
    place: tuple[str, int] | None = None
    handed_in: Mapping[Any, str] = field(default_factory=dict)


def _walk(jaxpr: Any, around: _Around) -> Iterator[JaxprPromotion]:
    makers = {variable: equation for equation in jaxpr.eqns for variable in equation.outvars}
    readers: dict[Any, list[Any]] = {}
    for equation in jaxpr.eqns:
        for variable in equation.invars:
            if not hasattr(variable, "val"):
                readers.setdefault(variable, []).append(equation)
    for equation in jaxpr.eqns:
        place = jax_private.place_of(equation) or around.place
        if equation.primitive.name == "convert_element_type":
            row = _promotion(equation, makers, readers, replace(around, place=place))
            if row is not None:
                yield row
        for inner, times, exact in _held(equation):
            handed_in = {}
            if len(inner.invars) == len(equation.invars) and times == 1:
                handed_in = {
                    inside: _described(_origin(outside, makers), makers, around.handed_in)
                    for inside, outside in zip(inner.invars, equation.invars, strict=True)
                }
            inside = _Around(around.times * times, around.exact and exact, place, handed_in)
            yield from _walk(inner, inside)


def _promotion(
    equation: Any, makers: Mapping[Any, Any], readers: Mapping[Any, list[Any]], around: _Around
) -> JaxprPromotion | None:
    (source,) = equation.invars
    (result,) = equation.outvars
    before, after = source.aval, result.aval
    asked = jax_private.called_by_user(equation)
    if asked in _CASTS or not _widens(before.dtype, after.dtype):
        return None
    # Without a frame of the user's, what the value meets has to tell.
    met = _met(result, makers, readers, None if asked else source)
    if met is None:
        return None
    operation, partner = met
    origin = _origin(partner, makers)
    dimensions = tuple(int(size) for size in before.shape)
    file, line = around.place or ("", 0)
    return JaxprPromotion(
        file=file,
        line=line,
        operation=operation,
        source=hlo_dtype(before.dtype),
        result=hlo_dtype(after.dtype),
        dimensions=dimensions,
        count=around.times,
        elements=prod(dimensions) * around.times,
        exact=around.exact,
        partner="number" if prod(origin.aval.shape) == 1 else "array",
        partner_weak=bool(getattr(partner.aval, "weak_type", False)),
        partner_text=_described(origin, makers, around.handed_in),
    )


def _widens(source: Any, result: Any) -> bool:
    """Whether a conversion widens among floats, or makes 64 bits of a narrower integer."""
    if not jnp.issubdtype(source, np.number) or not jnp.issubdtype(result, np.number):
        return False
    if jnp.issubdtype(source, np.inexact):
        return bool(result.itemsize > source.itemsize)
    return bool(result.itemsize >= 8 > source.itemsize)


def _met(
    widened: Any, makers: Mapping[Any, Any], readers: Mapping[Any, list[Any]], source: Any | None
) -> tuple[str, Any] | None:
    """The operation in which the widened value meets one of its new type, and that one.

    Args:
        widened: The result of the conversion.
        makers: The equation behind each variable.
        readers: The equations that read each variable.
        source: The value before; where given, the partner must not depend on it.
    """
    pending, seen = [widened], {widened}
    while pending and len(seen) < _MOST_STEPS:
        value = pending.pop()
        for reader in readers.get(value, ()):
            name = reader.primitive.name
            if name in _MOVES:
                pending += [one for one in reader.outvars if one not in seen]
                seen.update(reader.outvars)
            elif name in _MEETINGS:
                partner = _partner(reader, value, makers)
                if partner is not None and (
                    source is None or not _depends(partner, source, makers)
                ):
                    return name, partner
    return None


def _partner(reader: Any, value: Any, makers: Mapping[Any, Any]) -> Any | None:
    """Another operand in the wide type that no conversion from a narrower one made."""
    for operand in reader.invars:
        if operand is value or getattr(operand.aval, "dtype", None) != value.aval.dtype:
            continue
        made = _maker(_origin(operand, makers), makers)
        if made is not None and made.primitive.name == "convert_element_type":
            before = made.invars[0].aval
            widened = _widens(before.dtype, made.outvars[0].aval.dtype)
            if widened and jax_private.called_by_user(made) not in _CASTS:
                continue
        return operand
    return None


def _origin(variable: Any, makers: Mapping[Any, Any]) -> Any:
    """The variable behind movement."""
    for _ in range(_MOST_STEPS):
        made = _maker(variable, makers)
        if made is None or made.primitive.name not in _MOVES:
            break
        variable = made.invars[0]
    return variable


def _depends(variable: Any, source: Any, makers: Mapping[Any, Any]) -> bool:
    """Whether a value is computed from ``source`` in the same jaxpr; so many steps back."""
    pending = [variable]
    seen: set[Any] = set()
    while pending and len(seen) < _MOST_STEPS:
        value = pending.pop()
        if hasattr(value, "val") or value in seen:
            continue
        if value is source:
            return True
        seen.add(value)
        made = _maker(value, makers)
        pending += made.invars if made is not None else []
    return False


def _maker(variable: Any, makers: Mapping[Any, Any]) -> Any | None:
    """The equation that makes a variable; literals are made by none, and have no hash."""
    return None if hasattr(variable, "val") else makers.get(variable)


def _described(value: Any, makers: Mapping[Any, Any], handed_in: Mapping[Any, str]) -> str:
    if hasattr(value, "val"):
        literal = np.asarray(value.val)
        return f"{literal.reshape(-1)[0]:g}" if literal.size == 1 else "constant"
    made = makers.get(value)
    return str(made.primitive.name) if made is not None else handed_in.get(value, "")


def _held(equation: Any) -> Iterator[tuple[Any, int, bool]]:
    """The jaxprs that an equation runs, how often, and whether that is exact."""
    name, params = equation.primitive.name, equation.params
    if name in _KERNELS:
        return
    times, exact = 1, name != "cond"
    if name == "scan":
        times = int(params["length"])
    elif name == "while":
        number = static_trip_count(equation)
        times, exact = (1, False) if number is None else (number, True)
    for parameter in params.values():
        for value in parameter if isinstance(parameter, tuple | list) else (parameter,):
            inner = _plain(value)
            if hasattr(inner, "eqns") and hasattr(inner, "invars"):
                yield inner, times, exact


_KERNELS = frozenset({"pallas_call", "core_map"})
"""Their bodies run on blocks in registers, where widening costs no memory."""


def _plain(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)
