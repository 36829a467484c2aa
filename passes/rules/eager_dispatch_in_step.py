"""HS103."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloscope.passes.idle_causes import (
    busiest,
    driven_hosts,
    every_step,
    per_step,
    severity_of_host_time,
    site_of_frame,
    window_share,
)
from hloscope.pipeline.findings import Category, Finding, Quantity
from hloscope.pipeline.rules import Limits, rule
from hloscope.traces.host_budget import HostBudget, HostCalls
from hloscope.traces.summary import HostSummary, Trace

__all__ = ["eager_dispatch_in_step"]

_SHOWN = 4


@rule("HS103", "eager-dispatch-in-step", Category.SYNC)
def eager_dispatch_in_step(trace: Trace, limits: Limits) -> Iterator[Finding]:
    """Finds operations that Python dispatches one by one in every step, outside of the step.

    What it does:
        Counts the programs that the thread which drives the devices calls beside
        the one that ran longest. Those that it calls in every step and that run
        no more than ``eager_kernels`` (2) kernels are single operations, as
        ``loss * 2`` on an array compiles and calls one. They are listed together
        from ``traced_share`` (2%) of the window on, by the time of their calls,
        and are a note where the host runs ahead of its devices all the same.

    Why it costs:
        Each is a program of its own: some tens of microseconds of Python and of
        runtime, a launch, and a pass over its arrays that nothing is fused with.

    Example:
            params, loss = step(params, batch)
            total = total + loss * batch.shape[0]     # two programs more
            scaled = loss.astype(jnp.float32)         # and a third

    Use instead:
        Do it in the step, where it is fused with the rest, or with numpy on
        what was fetched:

            @jax.jit
            def step(params, batch, total):
                ...
                return params, total + loss * batch.shape[0]
    """
    for host, budget in driven_hosts(trace):
        steps = len(budget.counted)
        found = {
            program: calls
            for program, calls in budget.calls.items()
            if program != budget.program
            and every_step(calls.number, steps)
            and _is_single(host, program, calls, limits)
        }
        time = sum(calls.time for calls in found.values())
        share = time / budget.window.length if budget.window.length else 0.0
        if found and share >= limits.traced_share:
            yield _finding(host, budget, found, share, limits)


def _is_single(host: HostSummary, program: str, calls: HostCalls, limits: Limits) -> bool:
    """Whether a run of a program is as few kernels as one operation takes."""
    ran = busiest(host).tallies["module"].get(program)
    return ran is not None and ran.number <= limits.eager_kernels * calls.number


def _finding(
    host: HostSummary,
    budget: HostBudget,
    found: Mapping[str, HostCalls],
    share: float,
    limits: Limits,
) -> Finding:
    steps = len(budget.counted)
    number = sum(calls.number for calls in found.values())
    cost = per_step("time of the host", sum(calls.time for calls in found.values()), steps)
    longest = max(found.values(), key=lambda calls: calls.time)
    modules = busiest(host).tallies["module"]
    on_device = sum(modules[program].time for program in found)
    names = list(found)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return Finding(
        code="HS103",
        name="eager-dispatch-in-step",
        category=Category.SYNC,
        severity=severity_of_host_time(share, host, limits),
        message="single operations are dispatched one by one in every step",
        site=site_of_frame(longest.caller),
        evidence=(
            cost,
            window_share(share),
            Quantity("calls a step", number / steps),
            per_step("time of the device", on_device, steps),
        ),
        cost=cost,
        fix="Move them into the jitted step, or compute them with numpy on what was fetched.",
        notes=(f"{', '.join(names[:_SHOWN])}{more}",),
    )
