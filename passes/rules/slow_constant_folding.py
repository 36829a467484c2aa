"""HS802."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.errors import Unavailable
from hloscope.ir import Instruction
from hloscope.ir.compiler_log import SlowFold
from hloscope.passes.finding_sites import instruction_site
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Site, Unit
from hloscope.pipeline.inputs import CompilerSetup, CompileTimes, LoweredModule
from hloscope.pipeline.rules import Limits, rule

__all__ = ["slow_constant_folding"]

_WARNED = "lower bound: when XLA warned"


@rule("HS802", "slow-constant-folding", Category.COMPILE_TIME)
def slow_constant_folding(
    setup: CompilerSetup, times: CompileTimes | None, lowered: LoweredModule | None, limits: Limits
) -> Iterator[Finding]:
    """Finds operations on constants that XLA computed for seconds while compiling.

    What it does:
        Reads what XLA says on standard error while it compiles for hloscope: it
        warns of every instruction on constants that takes it more than a second to
        evaluate, and says at the end how long it took. Where the module before
        optimization is known, the line of Python that the instruction is from is
        named.

    Why it costs:
        XLA evaluates on the host with a slow interpreter what the chip would do
        in no time. The result is stored in the executable as well (HS303, HS301).

    Example:
            table = np.load("table.npy")

            @jax.jit
            def step(x):
                smooth = jax.lax.reduce_window(table, 0.0, jax.lax.add, (512, 1), (1, 1), "SAME")
                return x + smooth[:8]

    Use instead:
        Hand the array in as an argument, so that XLA does not know its value; or
        compute the result once, in numpy or in a function of its own, and hand
        that in:

            @jax.jit
            def step(x, smooth):
                return x + smooth[:8]
    """
    if setup.slow_folds is None:
        raise Unavailable("what the compiler said while compiling is not known")
    compile_seconds = times.compile if times is not None else None
    for fold in setup.slow_folds:
        yield _finding(fold, compile_seconds, lowered, limits)


def _finding(
    fold: SlowFold, compile_seconds: float | None, lowered: LoweredModule | None, limits: Limits
) -> Finding:
    cost = (
        Quantity("seconds of folding", fold.seconds, Unit.SECONDS)
        if fold.ended
        else Quantity("seconds of folding", fold.seconds, Unit.SECONDS, Basis.BOUNDED, _WARNED)
    )
    evidence = [cost]
    severity = Severity.WARNING
    if compile_seconds:
        severity = limits.severity(fold.seconds / compile_seconds)
        evidence.append(Quantity("compile", compile_seconds, Unit.SECONDS))
    # Seconds of a compile are worth no error.
    severity = min(severity, Severity.WARNING, key=lambda one: one.rank)
    before = _in_lowered(fold, lowered)
    what = fold.op_name.rpartition("/")[2] or fold.instruction
    return Finding(
        code="HS802",
        name="slow-constant-folding",
        category=Category.COMPILE_TIME,
        severity=severity,
        message=f"XLA computed {what} ({fold.shape}) on constants while compiling"
        if fold.shape
        else f"XLA computed {what} on constants while compiling",
        site=instruction_site(before)
        if before is not None
        else Site(instruction=fold.instruction, op_name=fold.op_name or None),
        evidence=tuple(evidence),
        cost=cost,
        fix="Pass the array that it is computed from to the step as an argument, or its result.",
    )


def _in_lowered(fold: SlowFold, lowered: LoweredModule | None) -> Instruction | None:
    """The instruction that JAX handed to XLA and that was folded; itself it is gone."""
    if lowered is None or not fold.op_name:
        return None
    try:
        module = lowered.module
    except Unavailable:
        return None
    return next(
        (
            instruction
            for computation in module.computations.values()
            for instruction in computation.instructions
            if instruction.op_name == fold.op_name and instruction.location is not None
        ),
        None,
    )
