"""HS405."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.wide_types import WideLine, WideTypes
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["float64_leak"]

_MOSTLY = 0.5
_ONCE = "loops of unknown length run once"


@rule("HS405", "float64-leak", Category.DTYPE_CHURN)
def float64_leak(wide: WideTypes, limits: Limits) -> Iterator[Finding]:
    """Finds float64 arithmetic in a program that is not a float64 program.

    What it does:
        Lists every source line that computes arrays in float64 or complex128,
        from ``float64_bytes`` (4 KiB) of them on, with the place where the type
        comes in. A program half of whose floating-point arguments, by bytes,
        are float64 is one on purpose and is left alone. Single numbers are
        counted by ``hloscope dtypes`` and listed nowhere.

    Why it costs:
        float64 runs at half the rate of float32 on a data-centre GPU's plain
        units, at a 32nd or less on other GPUs, and in software on TPUs. It takes
        twice the memory, and whatever it meets is widened to it.

    Example:
            jax.config.update("jax_enable_x64", True)
            scale = np.linspace(0.0, 1.0, n)        # float64
            h = h * scale                           # and now h is, too

    Use instead:
            scale = np.linspace(0.0, 1.0, n, dtype=np.float32)
            h = h * scale
    """
    if wide.floating_arguments and wide.float64_arguments >= _MOSTLY * wide.floating_arguments:
        return
    for line in wide.float64:
        if line.bytes >= limits.float64_bytes and line.largest.shape.num_elements > 1:
            yield _finding(line, wide, limits)


def _finding(line: WideLine, wide: WideTypes, limits: Limits) -> Finding:
    share = line.bytes / wide.computed_bytes if wide.computed_bytes else 0.0
    basis, model = (Basis.EXACT, None) if line.exact else (Basis.MODELLED, _ONCE)
    cost = Quantity("bytes computed", line.bytes, Unit.BYTES, basis, model)
    name = "complex128" if line.dtype == "c128" else "float64"
    notes = [f"largest: {line.largest.shape}, {line.largest.name}"]
    if line.enters:
        enters = line.enters[0]
        made = f"from {enters.operands[0].shape.dtype} " if enters.operands else ""
        notes.append(f"the type comes in here, {made}by {enters.opcode} {enters.name}")
    else:
        notes.append("the type was handed on to here")
    return Finding(
        code="HS405",
        name="float64-leak",
        category=Category.DTYPE_CHURN,
        severity=limits.severity(share),
        message=f"a line computes in {name} in a program whose arguments are narrower",
        site=instruction_site(line.largest),
        evidence=(
            cost,
            Quantity("share of all computed bytes", share, Unit.SHARE, basis, model),
            Quantity("instructions", len(line.instructions)),
        ),
        cost=cost,
        fix="Give NumPy arrays and constants a dtype of float32, or leave jax_enable_x64 off.",
        notes=tuple(notes),
    )
