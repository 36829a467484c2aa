"""HS303."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.errors import Unavailable
from hloscope.passes.constants import Constant, Constants, Origin
from hloscope.passes.finding_sites import instruction_site
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["folded_constant"]

_ERROR_TIMES = 64


@rule("HS303", "folded-constant", Category.BAKED_CONSTANTS)
def folded_constant(constants: Constants, limits: Limits) -> Iterator[Finding]:
    """Finds large constants that XLA computed while compiling.

    What it does:
        Compares each constant of ``constant_bytes`` (1 MiB) or more with the
        arrays of the jaxpr. One that holds real data, and the data of none of
        them, is the result of operations on constants that XLA ran once and
        stored. That takes a capture: a bare dump does not say what the step
        held, and its constants are left to HS301.

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
    for constant in constants.constants:
        if (
            constant.origin is Origin.FOLDED
            and constant.kind == "data"
            and constant.bytes >= limits.constant_bytes
        ):
            yield _finding(constant, constants, limits)


def _finding(constant: Constant, constants: Constants, limits: Limits) -> Finding:
    shape = f"{constant.dtype}[{','.join(map(str, constant.dimensions))}]"
    reader = next((u for u in constant.instruction.users if u.location is not None), None)
    size = Quantity("bytes", constant.bytes, Unit.BYTES)
    notes = [f"known because {constant.known_by}"]
    source = ", ".join(constant.likely_from)
    if source:
        notes.append(f"the only closed-over array with as many elements is {source}")
    severe = constant.bytes >= _ERROR_TIMES * limits.constant_bytes
    return Finding(
        code="HS303",
        name="folded-constant",
        category=Category.BAKED_CONSTANTS,
        severity=Severity.ERROR if severe else Severity.WARNING,
        message=f"XLA folded operations on constants into {shape}",
        site=instruction_site(constant.instruction, line_of=reader),
        evidence=(size, Quantity("all constants", constants.total_bytes, Unit.BYTES)),
        cost=size,
        fix=f"Pass {source or 'the array that it is computed from'} to the step as an argument.",
        notes=tuple(notes),
    )
