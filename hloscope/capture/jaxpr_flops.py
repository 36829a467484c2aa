"""Counting the FLOPs of a jaxpr: what the step's author wrote, before any compiler.

Independent of the passes over HLO on purpose: the two are held against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from hloscope.capture import jax_private
from hloscope.capture.jaxpr_loops import static_trip_count
from hloscope.capture.jaxpr_products import NO_PRODUCTS, PRODUCTS, Product
from hloscope.ir.jaxpr_count import JaxprCount, JaxprFlops, JaxprSite, UncountedPrimitive

__all__ = ["count_jaxpr", "product_flops_of"]

_NOTHING = JaxprFlops(0, 0, 0)

_OPAQUE = {
    "pallas_call": "a kernel, whose body runs on blocks of its operands",
    "core_map": "a kernel, whose body runs on every core",
    "ffi_call": "a foreign function",
    "pure_callback": "Python on the host",
    "io_callback": "Python on the host",
}
"""Primitives that may compute products which the jaxpr does not show."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What tells the products of one site from those of another."""

    kind: str
    file: str
    line: int
    backward: bool
    recomputed: bool
    each: int


@dataclass(slots=True)
class _Tally:
    """What some equations cost, and how many products of each site run."""

    by_kind: dict[str, JaxprFlops] = field(default_factory=dict)
    recomputed: JaxprFlops = _NOTHING
    sites: Counter[_Place] = field(default_factory=Counter)
    repeated: Counter[_Place] = field(default_factory=Counter)

    @property
    def total(self) -> JaxprFlops:
        return sum(self.by_kind.values(), _NOTHING)

    def add(self, place: _Place) -> None:
        exact = JaxprFlops(place.each, place.each, place.each)
        self.by_kind[place.kind] = self.by_kind.get(place.kind, _NOTHING) + exact
        if place.recomputed:
            self.recomputed += exact
        self.sites[place] += 1

    def include(self, other: _Tally) -> None:
        for kind, flops in other.by_kind.items():
            self.by_kind[kind] = self.by_kind.get(kind, _NOTHING) + flops
        self.recomputed += other.recomputed
        self.sites.update(other.sites)
        self.repeated.update(other.repeated)

    def times(self, number: int | None) -> _Tally:
        """The cost of running it so often; ``None`` for a number that is not known."""
        nominal = 1 if number is None else number
        return _Tally(
            {kind: _times(flops, number) for kind, flops in self.by_kind.items()},
            _times(self.recomputed, number),
            Counter({place: runs * nominal for place, runs in self.sites.items()}),
            Counter({place: runs * nominal for place, runs in self.repeated.items()}),
        )


def _times(flops: JaxprFlops, number: int | None) -> JaxprFlops:
    if number is None:
        return JaxprFlops(0, 0 if flops.high == 0 else None, flops.nominal)
    high = None if flops.high is None else flops.high * number
    return JaxprFlops(flops.low * number, high, flops.nominal * number)


def _one_of(branches: Sequence[_Tally]) -> _Tally:
    """The cost of running one of several; the dearest stands for all where one must."""
    dearest = max(branches, key=lambda tally: tally.total.nominal)

    def between(flops: Sequence[JaxprFlops], nominal: JaxprFlops) -> JaxprFlops:
        highs = [each.high for each in flops if each.high is not None]
        high = max(highs) if len(highs) == len(flops) else None
        return JaxprFlops(min(each.low for each in flops), high, nominal.nominal)

    kinds = {kind for tally in branches for kind in tally.by_kind}
    return _Tally(
        {
            kind: between(
                [tally.by_kind.get(kind, _NOTHING) for tally in branches],
                dearest.by_kind.get(kind, _NOTHING),
            )
            for kind in kinds
        },
        between([tally.recomputed for tally in branches], dearest.recomputed),
        dearest.sites,
        dearest.repeated,
    )


def count_jaxpr(jaxpr: Any) -> JaxprCount:
    """Count the products of a closed jaxpr over all devices that it runs on.

    Matrix products and convolutions are counted by their arithmetic, a
    multiply-add as two; factorizations, transforms and triangular solves by the
    textbook. A scan's body counts as often as it runs, a
    conditional is the range over its branches, the body of a ``shard_map``
    counts once for each device of its mesh axes. What no jaxpr tells is listed.

    Args:
        jaxpr: What ``jax.jit(f).trace(...).jaxpr`` or ``jax.make_jaxpr`` gives.
    """
    reading = _Reading()
    inner = _plain(jaxpr)
    tally = reading.walk(inner, _Context())
    alive = jax_private.live_part(inner)
    living = tally if alive is None else _Reading().walk(alive, _Context())
    sites = tuple(
        _site(place, runs, living.sites[place], living.repeated[place])
        for place, runs in tally.sites.items()
        if runs
    )
    return JaxprCount(
        tally.total,
        tally.by_kind,
        tally.recomputed,
        sites,
        tuple(reading.uncounted.values()),
        tuple(sorted(reading.models)),
        tuple(sorted(reading.notes)),
    )


def product_flops_of(function: Callable[..., Any], *args: Any) -> JaxprFlops:
    """FLOPs of the products that ``function`` traces to."""
    import jax

    return count_jaxpr(jax.make_jaxpr(function)(*args)).total


def _site(place: _Place, runs: int, living: int, repeated: int) -> JaxprSite:
    return JaxprSite(
        place.kind,
        place.file,
        place.line,
        place.backward,
        place.recomputed,
        place.each,
        runs,
        max(runs - living, 0),
        repeated,
    )


@dataclass(frozen=True, slots=True)
class _Context:
    """What holds for all equations of a jaxpr by where it stands."""

    times: int = 1
    backward: bool = False
    recomputed: bool = False

    def within(self, scope: str) -> _Context:
        """The context of an equation under JAX's name stack ``scope``."""
        backward = self.backward or "transpose(" in scope
        recomputed = self.recomputed or "rematted_computation" in scope
        if (backward, recomputed) == (self.backward, self.recomputed):
            return self
        return replace(self, backward=backward, recomputed=recomputed)


class _Reading:
    """One walk over a jaxpr and all that it holds."""

    def __init__(self) -> None:
        self.uncounted: dict[tuple[str, str], UncountedPrimitive] = {}
        self.models: set[str] = set()
        self.notes: set[str] = set()

    def walk(self, jaxpr: Any, context: _Context) -> _Tally:
        tally = _Tally()
        seen: set[tuple[Any, ...]] = set()
        for equation in jaxpr.eqns:
            inside = context.within(jax_private.scope_of(equation))
            count = PRODUCTS.get(equation.primitive.name)
            if count is None:
                tally.include(self.equation(equation, inside))
                continue
            product = count(equation)
            place = self.place(equation, product, inside)
            tally.add(place)
            key = _same_product(equation)
            tally.repeated[place] += key in seen
            seen.add(key)
            if product.model:
                self.models.add(product.model)
        return tally

    def place(self, equation: Any, product: Product, context: _Context) -> _Place:
        file, line = jax_private.place_of(equation) or ("", 0)
        return _Place(product.kind, file, line, context.backward, context.recomputed, product.flops)

    def equation(self, equation: Any, context: _Context) -> _Tally:
        """The cost of an equation that is no product itself."""
        name, params = equation.primitive.name, equation.params
        if name in _OPAQUE:
            self.leave_out(equation, _OPAQUE[name], context)
            return _Tally()
        if name == "scan":
            return self.repeated(params["jaxpr"], params["length"], context)
        if name == "while":
            return self.loop(equation, context)
        if name == "cond":
            return self.branches(equation, context)
        if name == "custom_linear_solve":
            # Of its four functions one runs; the others are there to differentiate it.
            return self.walk(_plain(params["jaxprs"].solve), context)
        if name == "shard_map":
            axes = params.get("manual_axes", params.get("newly_manual_axes"))
            shape = params["mesh"].shape
            devices = prod(size for axis, size in shape.items() if axes is None or axis in axes)
            return self.repeated(params["jaxpr"], devices, context)
        held = list(_held_jaxprs(params.values()))
        if name in _RUN_ONCE:
            tally = _Tally()
            for jaxpr in held:
                tally.include(self.walk(jaxpr, context))
            return tally
        if name not in NO_PRODUCTS and name not in jax_private.known_primitives():
            self.leave_out(equation, "a primitive that hloscope does not know", context)
        elif any(_has_products(jaxpr) for jaxpr in held):
            self.leave_out(equation, "how often it runs what it holds is not known", context)
        return _Tally()

    def repeated(self, jaxpr: Any, number: int, context: _Context) -> _Tally:
        inside = replace(context, times=context.times * number)
        return self.walk(_plain(jaxpr), inside).times(number)

    def loop(self, equation: Any, context: _Context) -> _Tally:
        """A while loop: the body as often as it runs, the condition once more."""
        number = static_trip_count(equation)
        params = equation.params
        inside = replace(context, times=context.times * (1 if number is None else number))
        body = self.walk(_plain(params["body_jaxpr"]), inside)
        condition = self.walk(_plain(params["cond_jaxpr"]), inside)
        if number is None and (body.sites or condition.sites):
            self.notes.add(f"a while loop of unknown length at {_where(equation)}")
        tally = body.times(number)
        tally.include(condition.times(None if number is None else number + 1))
        return tally

    def branches(self, equation: Any, context: _Context) -> _Tally:
        branches = [self.walk(_plain(each), context) for each in equation.params["branches"]]
        if len({tally.total for tally in branches}) > 1:
            self.notes.add(f"branches of different cost at {_where(equation)}")
        return _one_of(branches)

    def leave_out(self, equation: Any, reason: str, context: _Context) -> None:
        params = equation.params
        name = params.get("target_name") or params.get("name_and_src_info") or params.get("name")
        said = str(name).split(" at ")[0] if name is not None else ""
        estimate = getattr(params.get("cost_estimate"), "flops", None)
        if estimate is not None:
            reason += f"; its author estimates {estimate} FLOP a call"
        key = (equation.primitive.name, said)
        known = self.uncounted.get(key)
        if known is not None:
            self.uncounted[key] = replace(known, calls=known.calls + context.times)
            return
        operands = ", ".join(_type_of(variable) for variable in equation.invars)
        results = ", ".join(_type_of(variable) for variable in equation.outvars)
        self.uncounted[key] = UncountedPrimitive(
            *key, context.times, f"{operands} -> {results}", reason
        )


_RUN_ONCE = frozenset(
    """
    call call_exported checkpoint closed_call composite core_call core_closed_call
    custom_jvp_call custom_lin custom_partitioning custom_vjp_call custom_vjp_call_jaxpr
    custom_vmap_call jit linear_call pjit remat remat2 remat_opt run_state
    """.split()  # noqa: SIM905
)
"""Primitives that run the one jaxpr that they hold once."""


def _plain(jaxpr: Any) -> Any:
    """The jaxpr inside a closed one; in newer versions of JAX they are the same."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def _held_jaxprs(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        for item in value if isinstance(value, tuple | list) else (value,):
            plain = _plain(item)
            if hasattr(plain, "eqns"):
                yield plain


def _has_products(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name in PRODUCTS
        or equation.primitive.name in _OPAQUE
        or any(_has_products(held) for held in _held_jaxprs(equation.params.values()))
        for equation in jaxpr.eqns
    )


def _same_product(equation: Any) -> tuple[Any, ...]:
    """Equal for equations that compute the same from the same variables of one jaxpr."""
    operands = tuple(str(v) if hasattr(v, "val") else id(v) for v in equation.invars)
    return (equation.primitive.name, *operands, str(sorted(equation.params.items(), key=str)))


def _where(equation: Any) -> str:
    file, line = jax_private.place_of(equation) or ("", 0)
    return f"{file}:{line}" if file else "an unknown place"


def _type_of(variable: Any) -> str:
    aval = variable.aval
    short = getattr(aval, "str_short", None)
    return str(short(short_dtypes=True)) if short is not None else str(aval)
