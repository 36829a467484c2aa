"""HS602."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from hloscope.passes.idle_causes import (
    PS,
    IdleCause,
    idle_in,
    per_step,
    severity_of_idle,
    window_share,
)
from hloscope.pipeline.findings import Category, Finding, Quantity, Site, Unit
from hloscope.pipeline.rules import Limits, rule
from hloscope.traces.host_kinds import HostKind
from hloscope.traces.summary import Trace

__all__ = ["host_bound"]

_OWN = (
    HostKind.LAUNCH,
    HostKind.DISPATCH,
    HostKind.COMPILE,
    HostKind.PYTHON,
    HostKind.NATIVE,
)
_FIXES = {
    HostKind.LAUNCH: "Give each launch more to do: larger batches, several steps in one jit "
    "(jax.lax.scan), fewer and larger kernels.",
    HostKind.DISPATCH: "Make one jitted call a step of it, with fewer arguments; run several steps "
    "in one jit (jax.lax.scan).",
    HostKind.COMPILE: "Compile before the loop, and keep shapes, dtypes and static arguments as "
    "they are.",
}


@rule("HS602", "host-bound", Category.DATA_PATH)
def host_bound(trace: Trace, limits: Limits) -> Iterator[Finding]:
    """Finds devices that wait for Python and for launches.

    What it does:
        Takes the time in which a device was idle and looks what the thread that
        drives it did then: launched programs, was in JAX's dispatch, traced or
        compiled, or ran other Python or native code within a step. Time in the
        input pipeline and between steps is HS601's, in callbacks HS101's, in
        fetches HS104's, and in placing arguments HS603's. What nothing was
        recorded of counts for none of them. Listed from ``traced_share`` (2%) of
        the window on, for the device that waits most.

    Why it costs:
        The device has run all that it was given and does nothing until the next
        launch. A faster device does not help.

    Example:
            for x in batches:
                params, loss = step(params, x)      # a millisecond of Python, half of device

    Use instead:
        Do more in each call: larger batches, or several steps in one program:

            @jax.jit
            def steps(params, xs):
                return jax.lax.scan(step, params, xs)

        Keep Python out of the loop: no eager operations (HS103), no waiting
        (HS102), few and large leaves in the arguments.
    """
    cause = idle_in(trace, _OWN)
    if cause is not None and cause.share >= limits.traced_share:
        yield _finding(cause, limits)


def _finding(cause: IdleCause, limits: Limits) -> Finding:
    cost = per_step("idle", cause.time, cause.steps)
    evidence = [cost, window_share(cause.share)]
    budget = cause.host.budget
    if budget is not None and budget.counted:
        own = median(step.own for step in budget.counted) * PS
        evidence.append(Quantity("host's own work a step, median", own, Unit.SECONDS))
    parts = sorted(cause.times.items(), key=lambda each: -each[1])
    return Finding(
        code="HS602",
        name="host-bound",
        category=Category.DATA_PATH,
        severity=severity_of_idle(cause, limits),
        message=f"the device waits for the host: mostly {cause.first.value}",
        site=Site(),
        evidence=tuple(evidence),
        cost=cost,
        fix=_FIXES.get(cause.first, "Take it out of the loop, or do it in another thread."),
        notes=(
            "idle while the host was in: "
            + ", ".join(f"{kind.value} {time / cause.time:.0%}" for kind, time in parts if time),
        ),
    )
