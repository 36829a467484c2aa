"""HS803."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Site, Unit
from hloscope.pipeline.inputs import CompilerSetup, CompileTimes
from hloscope.pipeline.rules import Limits, rule

__all__ = ["no_persistent_cache"]


@rule("HS803", "no-persistent-cache", Category.COMPILE_TIME)
def no_persistent_cache(
    times: CompileTimes, setup: CompilerSetup, limits: Limits
) -> Iterator[Finding]:
    """Finds programs that compile for long and keep nothing of it for the next start.

    What it does:
        Takes a step of the user's own whose compile took ``compile_seconds`` (30)
        or more here, and looks whether JAX has a folder for its persistent
        compilation cache once the step's module was imported: from the
        environment or from the module. Files of the user's that speak of the
        compilation cache count as well, as a ``main`` may set it up. hloscope's
        own compile never uses that cache, and its own architectures are no
        program that could. A script elsewhere that sets it is not seen, so this
        is never more than a note.

    Why it costs:
        Every start compiles again: after a preemption, for each worker, for each
        try of something that does not change the step.

    Example:
            python train.py            # compiles for minutes, each time

    Use instead:
        Name a folder that outlives the process, before the first compile:

            jax.config.update("jax_compilation_cache_dir", "/path/on/a/disk")

        or set ``JAX_COMPILATION_CACHE_DIR``. Several hosts may share a folder.
    """
    if times.compile is None:
        raise Unavailable("the compile was not timed")
    if times.compile < limits.compile_seconds:
        return
    if setup.persistent_cache is None:
        raise Unavailable("no program of the user's is known that could set up the cache")
    if setup.persistent_cache:
        return
    cost = Quantity("compile", times.compile, Unit.SECONDS)
    yield Finding(
        code="HS803",
        name="no-persistent-cache",
        category=Category.COMPILE_TIME,
        severity=Severity.NOTE,
        message="each start compiles again: no persistent compilation cache is set up",
        site=Site(),
        evidence=(cost,),
        cost=cost,
        fix='Set JAX_COMPILATION_CACHE_DIR, or jax.config.update("jax_compilation_cache_dir", ...) '
        "before the first compile.",
    )
