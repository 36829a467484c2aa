"""HS603."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.idle_causes import (
    called_from,
    driven_hosts,
    every_step,
    per_step,
    severity_of_host_time,
    site_of_frame,
    window_share,
)
from hloscope.pipeline.findings import Category, Finding, Quantity
from hloscope.pipeline.rules import Limits, rule
from hloscope.traces.host_budget import HostBudget
from hloscope.traces.host_kinds import HostKind
from hloscope.traces.summary import HostSummary, Trace

__all__ = ["placement_cost"]


@rule("HS603", "placement-cost", Category.DATA_PATH)
def placement_cost(trace: Trace, limits: Limits) -> Iterator[Finding]:
    """Finds loops that place arguments on the device in every step, while the loop waits.

    What it does:
        Adds up what the thread that drives the devices spends on placing
        arguments: numpy arrays that are passed to a jitted function, arrays
        whose sharding is not the one that it was compiled for (``shard_args``),
        and ``device_put``. Where that comes in every step it is listed from
        ``traced_share`` (2%) of the window on. It is a note where the host runs
        ahead of its devices all the same.

    Why it costs:
        The thread copies or splits the arrays before it can launch, and a device
        that has nothing else to do waits for it. Weights that were never put on
        the devices are copied again each step.

    Example:
            for batch in loader:                        # numpy arrays
                params, loss = step(params, batch)      # copied within the call

    Use instead:
        Place each batch once, a step ahead, with the sharding that the step
        expects:

            sharding = NamedSharding(mesh, P("data"))
            nxt = jax.device_put(next(loader), sharding)
            for batch in loader:
                now, nxt = nxt, jax.device_put(batch, sharding)
                params, loss = step(params, now)
    """
    for host, budget in driven_hosts(trace):
        steps = len(budget.counted)
        time = budget.times.get(HostKind.PLACEMENT, 0)
        share = time / budget.window.length if budget.window.length else 0.0
        if every_step(budget.placements.number, steps) and share >= limits.traced_share:
            yield _finding(host, budget, time, share, limits)


def _finding(
    host: HostSummary, budget: HostBudget, time: int, share: float, limits: Limits
) -> Finding:
    steps = len(budget.counted)
    cost = per_step("placing", time, steps)
    paces = [device.pace for device in host.devices if device.pace is not None]
    idle = max((pace.idle.get(HostKind.PLACEMENT, 0) for pace in paces), default=0)
    return Finding(
        code="HS603",
        name="placement-cost",
        category=Category.DATA_PATH,
        severity=severity_of_host_time(share, host, limits),
        message="arguments are placed on the device in every step",
        site=site_of_frame(budget.placements.caller),
        evidence=(
            cost,
            window_share(share),
            per_step("of it with an idle device", idle, steps),
            Quantity("placements a step", budget.placements.number / steps),
        ),
        cost=cost,
        fix="Place each batch a step ahead with jax.device_put and the sharding that the step "
        "expects; keep what does not change on the device.",
        notes=called_from(budget.placements),
    )
