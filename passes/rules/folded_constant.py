"""HS303."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.errors import Unavailable
from hloscope.passes.constants import Constant, Constants, Origin
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["folded_constant"]

_DATA = ("data", "unknown")
_ERROR_TIMES = 64


@rule("HS303", "folded-constant", Category.BAKED_CONSTANTS)
def folded_constant(constants: Constants, limits: Limits) -> Iterator[Finding]:
    """Finds large constants that XLA computed while compiling.

    What it does:
        Compares each constant of ``constant_bytes`` (1 MiB) or more with the
        arrays of the jaxpr. One that holds real data, and the data of none of
        them, is the result of operations on constants that XLA ran once and
        stored. What it was computed from is named where that is known: an array
        that was only rounded or transposed is recognized. Of a dump, the folder
        has to hold the module before optimization as well
        (``XLA_FLAGS=--xla_dump_to=DIR``), whose constants stand in for the
        arrays; without it all constants are left to HS301.

    Why it costs:
        Folding makes compiling slow (XLA evaluates on the host, one thread) and
        the executable large: a small array may be folded into a large one. The
        array that it came from is often kept as well.

    Example:
            table = np.load("table.npy")

            @jax.jit
            def step(x):
                return x + jnp.sin(table) * 2      # the same in every call: stored, not computed

    Use instead:
        Pass what it is computed from, or its value, as an argument:

            @jax.jit
            def step(x, table):
                return x + jnp.sin(table) * 2
    """
    if constants.origin_note:
        raise Unavailable(
            f"{constants.origin_note}, so folded constants cannot be told from others"
        )
    groups: dict[object, list[Constant]] = {}
    for constant in constants.constants:
        if (
            constant.origin is Origin.FOLDED
            and constant.kind in _DATA
            and constant.bytes >= limits.constant_bytes
        ):
            groups.setdefault(constant.digest or constant.instruction, []).append(constant)
    for group in groups.values():
        yield _finding(group, constants, limits)


def _finding(group: Sequence[Constant], constants: Constants, limits: Limits) -> Finding:
    constant = group[0]
    shape = f"{constant.dtype}[{','.join(map(str, constant.dimensions))}]"
    total = sum(one.bytes for one in group)
    size = Quantity("bytes", total, Unit.BYTES)
    notes = [f"known because {constant.known_by}"]
    if constant.kind == "unknown":
        notes.append(f"contents unknown: {constants.note}")
    if len(group) > 1:
        notes.append(f"{len(group)} constants of the module hold it")
    likely = ", ".join(constant.likely_from)
    if likely:
        notes.append(f"the only closed-over array with as many elements is {likely}")
    name = ", ".join(constant.names)
    severe = total >= _ERROR_TIMES * limits.constant_bytes
    return Finding(
        code="HS303",
        name="folded-constant",
        category=Category.BAKED_CONSTANTS,
        severity=Severity.ERROR if severe else Severity.WARNING,
        message=f"XLA folded operations on {name or 'constants'} into {shape}",
        site=constant.site,
        evidence=(size, Quantity("all constants", constants.total_bytes, Unit.BYTES)),
        cost=size,
        fix=f"Pass {name or likely or 'the array that it is computed from'} to the step as an "
        "argument.",
        notes=tuple(notes),
    )
