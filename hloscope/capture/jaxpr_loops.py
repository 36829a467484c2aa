"""How often a while loop of a jaxpr runs, where its own equations say so."""

from __future__ import annotations

from typing import Any

__all__ = ["static_trip_count"]


def static_trip_count(equation: Any) -> int | None:
    """Iterations of ``while i < n: i += step`` where start, bound and step are literals.

    This is what ``fori_loop`` makes of bounds that Python knows, where it does
    not make a scan. ``None`` for every other loop.

    Args:
        equation: A ``while`` equation.
    """
    params = equation.params
    condition = _plain(params["cond_jaxpr"])
    body = _plain(params["body_jaxpr"])
    constants = params["cond_nconsts"]
    carried = constants + params["body_nconsts"]
    test = next((e for e in condition.eqns if e.outvars[0] is condition.outvars[0]), None)
    if test is None or test.primitive.name != "lt":
        return None
    counter, bound = test.invars
    place = _position(condition.invars, counter)
    if place is None or place < constants:
        return None
    place -= constants
    limit = _integer(bound)
    outside = _position(condition.invars, bound)
    if limit is None and outside is not None:
        # The bound is handed in, as a constant or among what the body leaves alone.
        if outside < constants:
            limit = _integer(equation.invars[outside])
        elif _unchanged(body, params["body_nconsts"], outside - constants):
            limit = _integer(equation.invars[carried + outside - constants])
    start = _integer(equation.invars[carried + place])
    step = _step(body, params["body_nconsts"], place)
    if limit is None or start is None or step is None or step <= 0:
        return None
    return max(-(-(limit - start) // step), 0)


def _plain(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _unchanged(body: Any, constants: int, place: int) -> bool:
    return body.outvars[place] is body.invars[constants + place]


def _step(body: Any, constants: int, place: int) -> int | None:
    """What one iteration adds to an element of the carry, where that is a literal."""
    made = next((e for e in body.eqns if e.outvars[0] is body.outvars[place]), None)
    if made is None or made.primitive.name != "add":
        return None
    before, step = made.invars
    return _integer(step) if before is body.invars[constants + place] else None


def _position(variables: Any, wanted: Any) -> int | None:
    return next((n for n, variable in enumerate(variables) if variable is wanted), None)


def _integer(value: Any) -> int | None:
    """The value of an integer literal; ``None`` for a variable and for other types."""
    literal = getattr(value, "val", None)
    try:
        return int(literal) if literal == int(literal) else None  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
