"""HS302."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.constants import Constant, Constants
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["duplicated_constant"]

_WARNING_TIMES = 16
_SHOWN = 4


@rule("HS302", "duplicated-constant", Category.BAKED_CONSTANTS)
def duplicated_constant(constants: Constants, limits: Limits) -> Iterator[Finding]:
    """Finds arrays that the executable holds more than once.

    What it does:
        Compares the constants of all computations by their contents. Those that
        hold the same real data are one finding where the copies beyond the
        first come to ``constant_bytes`` (1 MiB) or more. Constants whose
        elements a dump leaves out cannot be compared.

    Why it costs:
        Each copy takes its bytes in the executable, in the compilation cache
        and on the device. XLA copies a constant into every loop body and branch
        that reads it, and a function that is traced anew brings its array anew.

    Example:
            def layer(x):
                return x + np.load("positions.npy")     # a new array each time it is traced

            for _ in range(12):
                x = layer(x)

    Use instead:
        One argument is one buffer, however often it is read:

            def layer(x, positions):
                return x + positions
    """
    groups: dict[str, list[Constant]] = {}
    for constant in constants.constants:
        if constant.kind == "data" and constant.duplicates:
            groups.setdefault(constant.digest, []).append(constant)
    for group in groups.values():
        wasted = sum(constant.bytes for constant in group[1:])
        if wasted >= limits.constant_bytes:
            yield _finding(group, wasted, limits)


def _finding(group: Sequence[Constant], wasted: int, limits: Limits) -> Finding:
    first = group[0]
    shape = f"{first.dtype}[{','.join(map(str, first.dimensions))}]"
    name = ", ".join(first.names)
    cost = Quantity("bytes beyond the first copy", wasted, Unit.BYTES)
    places = [f"{c.instruction.name} in {c.instruction.computation.name}" for c in group[:_SHOWN]]
    if len(group) > _SHOWN:
        places.append(f"and {len(group) - _SHOWN} more")
    severe = wasted >= _WARNING_TIMES * limits.constant_bytes
    return Finding(
        code="HS302",
        name="duplicated-constant",
        category=Category.BAKED_CONSTANTS,
        severity=Severity.WARNING if severe else Severity.NOTE,
        message=f"{f'{name} ({shape})' if name else shape} is {len(group)} times in the executable",
        site=first.site,
        evidence=(
            Quantity("copies", len(group)),
            Quantity("bytes of one", first.bytes, Unit.BYTES),
            cost,
        ),
        cost=cost,
        fix=f"Pass {name or 'the array'} to the step as an argument: that is one buffer.",
        notes=tuple(places),
    )
