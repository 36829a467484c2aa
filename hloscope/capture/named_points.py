"""Which values a step names for its remat policies, and which of them cross to the backward pass.

Runs in the worker. Names end with the jaxpr: lowering writes none of them into
the module, so what is found here is all that anyone can know of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hloscope.capture import jax_private
from hloscope.capture.abstraction import hlo_dtype
from hloscope.capture.remat_policies import read_policy
from hloscope.ir.named_points import Crossing, Maker, NamedPoint, NamedPoints, RematPolicy

__all__ = ["find_named_points"]

_Path = tuple[int, ...]
_Labels = frozenset[tuple[_Path, bool]]
"""Named values that a variable holds, each with whether all iterations' are in it."""

_NONE: _Labels = frozenset()

_SAME_DATA = frozenset(
    """
    copy copy_p device_put expand_dims name optimization_barrier pvary reduce_precision reshape
    sharding_constraint squeeze transpose
    """.split()  # noqa: SIM905
)
"""Primitives whose results hold the elements of their operands and nothing else."""

_CALLS = frozenset(
    """
    call checkpoint closed_call core_call core_closed_call custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr jit pjit remat remat2 shard_map
    """.split()  # noqa: SIM905
)
"""Primitives that hand their operands to the one jaxpr that they hold."""

_MOST_STEPS = 64
_MOST_ROUNDS = 4


def find_named_points(jaxpr: Any) -> NamedPoints:
    """Read the named values of a closed jaxpr, after differentiation.

    A value crosses if an equation of the backward pass (by JAX's name stack)
    reads it, or reads what only reshapes it.

    Args:
        jaxpr: What ``jax.jit(f).trace(...).jaxpr`` gives.
    """
    plain = _plain(jaxpr)
    alive = jax_private.live_part(plain)
    reading = _Reading()
    top = plain if alive is None else alive
    reading.walk(top, [_NONE] * len(top.invars), _Where(frame=_Frame(top)))
    names = tuple(dict.fromkeys(_names(plain)))
    return NamedPoints(tuple(reading.points()), tuple(reading.policies), names)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A jaxpr where it runs, with the way out to what it was handed.

    Attributes:
        jaxpr: Which.
        caller: The equation that runs it, and the frame that this stands in.
        scope: The name stack around it.
    """

    jaxpr: Any
    caller: tuple[Any, _Frame] | None = None
    scope: str = ""


@dataclass(frozen=True, slots=True)
class _Where:
    """Where a walk is."""

    frame: _Frame
    path: _Path = ()
    loops: tuple[int | None, ...] = ()
    backward: bool = False

    def inside(self, index: int, jaxpr: Any, equation: Any, scope: str, backward: bool) -> _Where:
        frame = _Frame(jaxpr, (equation, self.frame), scope)
        return _Where(frame, (*self.path, index), self.loops, backward)

    def repeated(self, length: int | None) -> _Where:
        return _Where(self.frame, self.path, (*self.loops, length), self.backward)


@dataclass(slots=True)
class _Reading:
    """One walk over a jaxpr and those that it holds."""

    found: dict[_Path, NamedPoint] = field(default_factory=dict)
    kept: set[_Path] = field(default_factory=set)
    last: set[_Path] = field(default_factory=set)
    again: dict[_Path, tuple[str, str | None, int | None]] = field(default_factory=dict)
    policies: dict[RematPolicy, None] = field(default_factory=dict)
    producers: dict[int, dict[Any, Any]] = field(default_factory=dict)

    def points(self) -> Iterator[NamedPoint]:
        """Each with its fate; equal ones become one with their number."""
        again = Counter(self.again.values())
        alike: Counter[NamedPoint] = Counter()
        for path, point in self.found.items():
            crossing = Crossing.NOT_KEPT
            if path in self.kept:
                crossing = Crossing.KEPT
            elif path in self.last:
                crossing = Crossing.LAST
            recomputed = again[(point.name, point.file, point.line)]
            alike[replace(point, crossing=crossing, recomputed=recomputed)] += 1
        for point, number in alike.items():
            yield replace(point, equations=number)

    def walk(self, jaxpr: Any, handed: Sequence[_Labels], where: _Where) -> list[_Labels]:
        """The named values that a jaxpr's results hold, given those of its arguments."""
        held: dict[Any, _Labels] = dict(zip(jaxpr.invars, handed, strict=False))
        for index, equation in enumerate(jaxpr.eqns):
            operands = [_labels(held, variable) for variable in equation.invars]
            results = self.equation(index, equation, operands, where)
            held.update(
                (variable, labels)
                for variable, labels in zip(equation.outvars, results, strict=False)
                if labels
            )
        return [_labels(held, variable) for variable in jaxpr.outvars]

    def equation(
        self, index: int, equation: Any, operands: list[_Labels], where: _Where
    ) -> list[_Labels]:
        name, params = equation.primitive.name, equation.params
        own = jax_private.scope_of(equation)
        scope = _joined(where.frame.scope, own)
        backward = where.backward or "transpose(" in own or "rematted_computation" in own
        nothing = [_NONE] * len(equation.outvars)
        if "policy" in params:
            self.policies[read_policy(params["policy"])] = None
        if name in _CALLS:
            held = [_plain(value) for value in params.values() if _is_jaxpr(value)]
            if held and len(held[0].invars) == len(operands):
                inner = where.inside(index, held[0], equation, scope, backward)
                return self.walk(held[0], operands, inner)
        elif name == "scan":
            inner = where.inside(index, _plain(params["jaxpr"]), equation, scope, backward)
            return self.scan(equation, operands, inner)
        elif name == "cond":
            found = nothing
            for number, branch in enumerate(params["branches"]):
                inner = where.inside(index, _plain(branch), equation, scope, backward)
                inner = _Where(inner.frame, (*inner.path, number), inner.loops, backward)
                results = self.walk(_plain(branch), operands[1:], inner)
                found = [a | b for a, b in zip(found, results, strict=True)]
            return found
        elif name == "while":
            body = _plain(params["body_jaxpr"])
            inner = where.inside(index, body, equation, scope, backward).repeated(None)
            self.walk(body, [_NONE] * len(body.invars), inner)
        if backward:
            for key, every in (label for labels in operands for label in labels):
                (self.kept if every else self.last).add(key)
        if name == "name":
            return [self.named(index, equation, scope, where, backward) | operands[0]]
        if name in _SAME_DATA and len(operands) == len(equation.outvars):
            return list(operands)
        return nothing

    def named(
        self, index: int, equation: Any, scope: str, where: _Where, backward: bool
    ) -> _Labels:
        path = (*where.path, index)
        file, line = jax_private.place_of(equation) or (None, None)
        name = str(equation.params.get("name", ""))
        if backward:
            self.again[path] = (name, file, line)
            return _NONE
        aval = equation.outvars[0].aval
        self.found[path] = NamedPoint(
            name,
            hlo_dtype(aval.dtype),
            tuple(int(size) for size in aval.shape),
            scope,
            file,
            line,
            self.maker(equation.invars[0], where.frame),
            where.loops,
            1,
            Crossing.NOT_KEPT,
            0,
        )
        return frozenset(((path, True),))

    def scan(self, equation: Any, operands: list[_Labels], where: _Where) -> list[_Labels]:
        """What is carried comes around, what is stacked holds every iteration's."""
        length = equation.params["length"]
        consts, carried = jax_private.scan_counts(equation)
        inside = where.repeated(length)
        handed = list(operands)
        results: list[_Labels] = []
        for _ in range(_MOST_ROUNDS):
            results = self.walk(where.frame.jaxpr, handed, inside)
            around = [
                before | after
                for before, after in zip(handed[consts:], results[:carried], strict=False)
            ]
            if around == handed[consts : consts + carried]:
                break
            handed[consts : consts + carried] = around
        outside = {path for labels in operands for path, _ in labels}
        return [
            frozenset((path, every and (path in outside or length == 1)) for path, every in labels)
            if number < carried
            else labels
            for number, labels in enumerate(results)
        ]

    def maker(self, variable: Any, frame: _Frame) -> Maker:
        """Follow a variable to the equation that computed it, into and out of what JAX wraps."""
        for _ in range(_MOST_STEPS):
            if hasattr(variable, "val"):
                break
            equation = self.producer(variable, frame.jaxpr)
            if equation is None:
                outer = _handed_in(variable, frame)
                if outer is None:
                    break
                variable, frame = outer
                continue
            name, place = equation.primitive.name, equation.outvars.index(variable)
            scope = _joined(frame.scope, jax_private.scope_of(equation))
            if name in _SAME_DATA and place < len(equation.invars):
                variable = equation.invars[place]
                continue
            held = [_plain(value) for value in equation.params.values() if _is_jaxpr(value)]
            if name in _CALLS and held:
                frame = _Frame(held[0], (equation, frame), scope)
                variable = held[0].outvars[place]
                continue
            file, line = jax_private.place_of(equation) or (None, None)
            return Maker(name, scope, file, line)
        return Maker("", frame.scope, None, None)

    def producer(self, variable: Any, jaxpr: Any) -> Any | None:
        known = self.producers.get(id(jaxpr))
        if known is None:
            known = {result: e for e in jaxpr.eqns for result in e.outvars}
            self.producers[id(jaxpr)] = known
        return known.get(variable)


def _handed_in(variable: Any, frame: _Frame) -> tuple[Any, _Frame] | None:
    """What a jaxpr's argument stands for; of a loop's carried value what an iteration leaves."""
    if frame.caller is None or variable not in frame.jaxpr.invars:
        return None
    equation, outer = frame.caller
    number = frame.jaxpr.invars.index(variable)
    name = equation.primitive.name
    if name == "scan":
        consts, carried = jax_private.scan_counts(equation)
        if consts <= number < consts + carried:
            result = frame.jaxpr.outvars[number - consts]
            return (result, frame) if result is not variable else None
    elif name not in _CALLS:
        return None
    return (equation.invars[number], outer) if number < len(equation.invars) else None


def _labels(held: Mapping[Any, _Labels], variable: Any) -> _Labels:
    # A literal is no variable, and not always hashable.
    return _NONE if hasattr(variable, "val") else held.get(variable, _NONE)


def _names(jaxpr: Any) -> Iterator[str]:
    """Every name that is given, also to values that no result needs in the end."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "name":
            yield str(equation.params.get("name", ""))
        for value in equation.params.values():
            for held in value if isinstance(value, tuple | list) else (value,):
                if _is_jaxpr(held):
                    yield from _names(_plain(held))


def _joined(outer: str, inner: str) -> str:
    return f"{outer}/{inner}" if outer and inner else outer or inner


def _plain(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _is_jaxpr(value: Any) -> bool:
    return hasattr(_plain(value), "eqns")
