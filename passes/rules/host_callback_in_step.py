"""HS101."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.ir import Module
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.host_callbacks import HostCallback, HostCallbacks
from hloscope.passes.idle_causes import counted_steps, per_step, window_share
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity
from hloscope.pipeline.rules import Limits, rule
from hloscope.traces.summary import DeviceSummary, Trace

__all__ = ["host_callback_in_step"]

_OUTSIDE = (
    "Return what it shows and print it outside of the step, every so many steps; or put it under "
    "a static flag."
)
_FIXES = {
    "debug_print": _OUTSIDE,
    "debug_callback": _OUTSIDE,
    "infeed": "Pass the data to the step as arguments.",
    "outfeed": "Return the data from the step.",
}


@rule("HS101", "host-callback-in-step", Category.SYNC)
def host_callback_in_step(
    module: Module, callbacks: HostCallbacks, trace: Trace | None, limits: Limits
) -> Iterator[Finding]:
    """Finds calls back to Python, prints, infeeds and outfeeds in a compiled step.

    What it does:
        Looks in the compiled program for custom calls of JAX's callbacks, for
        sends to the host and receives from it, as a TPU has them, and for
        infeeds and outfeeds. Each is listed with the line of Python that asks
        for it and how often a step runs it. With a trace of the same program
        its measured time is there, too, where the device recorded any of it.

    Why it costs:
        The device stops until Python has run: it copies the operands to the
        host, waits for the interpreter, whatever else that does then, and copies
        the result back. Within a loop it does so in each iteration.

    Example:
            def step(params, batch):
                loss, grads = jax.value_and_grad(loss_fn)(params, batch)
                jax.debug.print("loss {}", loss)          # every step waits for a print

    Use instead:
        Return what is to be seen and print it outside, every so many steps:

            params, loss = step(params, batch)
            if n % 100 == 0:
                print(loss)

        Write a callback's computation in JAX, or do it before the step. Debug
        prints that must stay belong under a flag that is static, or under
        ``jax.lax.cond``.
    """
    for callback in callbacks.rows:
        yield _finding(callback, _measured(callback, module, trace), limits)


def _finding(
    callback: HostCallback, measured: tuple[DeviceSummary, int] | None, limits: Limits
) -> Finding:
    first = callback.instructions[0]
    times = callback.times
    runs = (
        Quantity("runs a step", times.nominal)
        if times.exact is not None
        else Quantity("runs a step", times.nominal, basis=Basis.BOUNDED, model=f"{times} times")
    )
    evidence, severity, cost = [runs], Severity.WARNING, runs
    if measured is not None:
        device, time = measured
        length = device.windows.chosen.length
        cost = per_step("time", time, counted_steps(device))
        evidence += [cost, window_share(time / length)]
        severity = limits.severity(time / length)
    return Finding(
        code="HS101",
        name="host-callback-in-step",
        category=Category.SYNC,
        severity=severity,
        message=f"{callback.what} calls the host in the step",
        site=instruction_site(first),
        evidence=tuple(evidence),
        cost=cost,
        fix=_FIXES.get(
            callback.what,
            "Compute it in JAX, or outside of the step: before it, or from what it returns.",
        ),
    )


def _measured(
    callback: HostCallback, module: Module, trace: Trace | None
) -> tuple[DeviceSummary, int] | None:
    """The device of a trace of this program that spent most on it, and that time."""
    names = {instruction.name for instruction in callback.instructions}
    found = [
        (device, sum(tally.time for op, tally in device.tallies["op"].items() if op in names))
        for device in (trace.devices if trace is not None else ())
        if module.name in device.tallies["module"]
    ]
    longest = max(found, key=lambda each: each[1], default=None)
    return longest if longest is not None and longest[1] else None
