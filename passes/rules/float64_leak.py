"""HS405."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hloscope.errors import Unavailable
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.wide_types import WideLine, WideTypes
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Site, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["float64_leak"]

_MOSTLY = 0.5
_ONCE = "loops of unknown length run once"


@rule("HS405", "float64-leak", Category.DTYPE_CHURN)
def float64_leak(wide: WideTypes, limits: Limits) -> Iterator[Finding]:
    """Finds float64 arithmetic in a program that is not a float64 program.

    What it does:
        Lists every source line at which arrays in float64 or complex128 begin,
        from ``float64_bytes`` (4 KiB) of them on, with what brings the type in
        and how much is computed on with it on other lines. On a TPU, whose
        compiler makes pairs of float32 of it, the module before optimization is
        read; of a dump without it the rule says nothing. A program half of
        whose floating-point arguments, by bytes, are float64 is one on purpose
        and is left alone. Single numbers are counted by ``hloscope dtypes`` and
        listed nowhere.

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
    found = False
    for line in wide.float64:
        if line.fed_by or line.largest.shape.num_elements <= 1:
            continue
        following = wide.following(line)
        if line.bytes + sum(one.bytes for one in following) >= limits.float64_bytes:
            found = True
            yield _finding(line, following, wide, limits)
    if wide.pairs and not found:
        raise Unavailable(
            "TPU compilers make pairs of 32-bit numbers of float64, and the module before that "
            "is not known"
        )


def _site(line: WideLine) -> Site:
    site = instruction_site(line.largest)
    file, number = line.location or (site.file, site.line)
    return replace(site, file=file, line=number)


def _finding(
    line: WideLine, following: Sequence[WideLine], wide: WideTypes, limits: Limits
) -> Finding:
    further = sum(one.bytes for one in following)
    total = line.bytes + further
    share = total / wide.computed_bytes if wide.computed_bytes else 0.0
    exact = all(one.exact for one in (line, *following))
    basis, model = (Basis.EXACT, None) if exact else (Basis.MODELLED, _ONCE)
    cost = Quantity("bytes computed", total, Unit.BYTES, basis, model)
    name = "complex128" if line.dtype == "c128" else "float64"
    notes = [f"largest: {line.largest.shape}, {line.largest.name}"]
    if line.enters:
        enters = line.enters[0]
        made = f"from {enters.operands[0].shape.dtype} " if enters.operands else ""
        notes.append(f"the type comes in here, {made}by {enters.opcode} {enters.name}")
    else:
        notes.append("the type was handed on to here")
    if following:
        largest = max(following, key=lambda one: one.bytes)
        many = "1 line computes" if len(following) == 1 else f"{len(following)} lines compute"
        at = ", most of it at {}:{}".format(*largest.location) if largest.location else ""
        notes.append(f"{many} on with what is made here{at}")
    if wide.before:
        notes.append("read from the module before optimization: the compiler makes pairs of it")
    if wide.pairs:
        notes.append(
            "the compiler made pairs of 32-bit numbers of it; only what enters or leaves the "
            "program is seen"
        )
    return Finding(
        code="HS405",
        name="float64-leak",
        category=Category.DTYPE_CHURN,
        severity=limits.severity(share),
        message=f"a line computes in {name} in a program whose arguments are narrower",
        site=_site(line),
        evidence=(
            cost,
            Quantity("of these on other lines", further, Unit.BYTES, basis, model),
            Quantity("share of all computed bytes", share, Unit.SHARE, basis, model),
            Quantity("instructions", len(line.instructions)),
        ),
        cost=cost,
        fix="Give NumPy arrays and constants a dtype of float32, or leave jax_enable_x64 off.",
        notes=tuple(notes),
    )
