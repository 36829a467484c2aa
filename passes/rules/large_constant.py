"""HS301."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.constants import Constant, Constants, Origin
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["large_constant"]

_DATA = ("data", "unknown")
_ERROR_TIMES = 64


@rule("HS301", "large-constant", Category.BAKED_CONSTANTS)
def large_constant(constants: Constants, limits: Limits) -> Iterator[Finding]:
    """Finds arrays that were compiled into the executable instead of passed to it.

    What it does:
        Lists every constant of the optimized module from ``constant_bytes``
        (1 MiB) on that holds real data. Arrays of one value and plain ramps are
        left out, because XLA makes them where it needs them; what XLA computed
        itself while compiling is HS303. The array's name comes from the closures
        and globals of the step's code. Where a dump does not print the elements,
        the constant is listed and its contents are called unknown. An array that
        JAX hoisted into an argument is no constant any more.

    Why it costs:
        The executable carries the bytes: in the lowered text, through every
        optimization pass that tries to fold them, in the compilation cache and
        on each device, beside the copy that the Python program still holds.
        Compiling takes longer, and another value of the array is another
        program that compiles again.

    Example:
            table = jnp.asarray(np.load("positions.npy"))   # 64 MiB

            @jax.jit
            def step(state, batch):
                h = batch + table[: batch.shape[1]]         # closed over: baked in
                ...

    Use instead:
        Make it an argument, so that the program reads it from a buffer:

            @jax.jit
            def step(state, batch, table):
                h = batch + table[: batch.shape[1]]
                ...

            step(state, batch, table)

        What is cheap to compute (masks, ramps, sinusoids) is better computed
        inside the step with ``jnp.arange`` and friends.
    """
    groups: dict[object, list[Constant]] = {}
    for constant in constants.constants:
        if (
            constant.bytes >= limits.constant_bytes
            and constant.kind in _DATA
            and constant.origin is not Origin.FOLDED
        ):
            groups.setdefault(_same_origin(constant), []).append(constant)
    for group in groups.values():
        yield _finding(group, constants, limits)


def _same_origin(constant: Constant) -> object:
    """Constants with the same contents, or of the same line and shape, are one finding."""
    location = constant.location
    if location is not None:
        return location.file, location.line, constant.dtype, constant.dimensions
    return constant.digest or constant.instruction


def _finding(group: Sequence[Constant], constants: Constants, limits: Limits) -> Finding:
    first = group[0]
    total = sum(constant.bytes for constant in group)
    shape = f"{first.dtype}[{','.join(map(str, first.dimensions))}]"
    names = list(dict.fromkeys(name for constant in group for name in constant.names))
    if names:
        shape = f"{', '.join(names)} ({shape})"
    many = f"{len(group)} constants {shape} are" if len(group) > 1 else f"{shape} is"
    notes = []
    if first.origin is Origin.TRACED:
        notes.append("it was made while tracing, by numpy or outside of jit's view")
    if any(constant.kind == "unknown" for constant in group):
        notes.append(f"contents unknown: {constants.note}")
    same = max(constant.duplicates for constant in group)
    if same:
        notes.append(f"{same + 1} constants of the module hold the same contents")
    size = Quantity("bytes", total, Unit.BYTES)
    severe = total >= _ERROR_TIMES * limits.constant_bytes
    return Finding(
        code="HS301",
        name="large-constant",
        category=Category.BAKED_CONSTANTS,
        severity=Severity.ERROR if severe else Severity.WARNING,
        message=f"{many} baked into the executable",
        site=first.site,
        evidence=(size, Quantity("all constants", constants.total_bytes, Unit.BYTES)),
        cost=size,
        fix=f"Pass {names[0] if names else 'the array'} to the step as an argument "
        "instead of closing over it.",
        notes=tuple(notes),
    )
