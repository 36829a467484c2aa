"""HS104."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.idle_causes import (
    busiest,
    called_from,
    counted_steps,
    driven_hosts,
    every_step,
    per_step,
    site_of_frame,
    window_share,
)
from hloscope.pipeline.findings import Category, Finding, Quantity
from hloscope.pipeline.rules import Limits, rule
from hloscope.traces.host_budget import HostBudget
from hloscope.traces.host_kinds import FETCH
from hloscope.traces.kernel_names import Category as Kind
from hloscope.traces.summary import HostSummary, Trace
from hloscope.traces.tallies import Tally

__all__ = ["device_to_host_copy"]


@rule("HS104", "device-to-host-copy", Category.SYNC)
def device_to_host_copy(trace: Trace, limits: Limits) -> Iterator[Finding]:
    """Finds arrays that are copied to the host in every step.

    What it does:
        Counts the copies from a device to its host, and the calls of Python that
        fetch an array (``np.asarray``, ``float``, ``.item()``, ``device_get``).
        Where either comes in every step, their time is listed from
        ``traced_share`` (2%) of the window on: that of the copies on the device
        or, where it is longer, that of the fetches while no device worked. The
        time in which a fetch only waits for the device is HS102's.

    Why it costs:
        A fetch moves an array over the slowest link that there is, and Python
        holds everything up until it is there.

    Example:
            params, metrics = step(params, batch)
            log({k: np.asarray(v) for k, v in metrics.items()})   # each one a copy, each step

    Use instead:
        Fetch what must be fetched at once and seldom, as one tree, and reduce
        it on the device before:

            if n % 100 == 0:
                log(jax.device_get(metrics))
    """
    for host, budget in driven_hosts(trace):
        copies, copying = _copies(host)
        fetched = every_step(budget.fetches.number, len(budget.counted))
        if not (fetched or every_step(copies.number, counted_steps(busiest(host)))):
            continue
        length = budget.window.length
        fetching = budget.times.get(FETCH, 0) / length if fetched and length else 0.0
        if max(fetching, copying) >= limits.traced_share:
            yield _finding(budget, copies, fetching, copying, counted_steps(busiest(host)), limits)


def _copies(host: HostSummary) -> tuple[Tally, float]:
    """Copies of the device that worked most, and their share of its window."""
    device = busiest(host)
    found = device.tallies["category"].get(str(Kind.DEVICE_TO_HOST), Tally(0, 0))
    length = device.windows.chosen.length
    return found, found.time / length if length else 0.0


def _finding(
    budget: HostBudget, copies: Tally, fetching: float, copying: float, steps: int, limits: Limits
) -> Finding:
    share = max(fetching, copying)
    by_host = fetching >= copying
    time = budget.times.get(FETCH, 0) if by_host else copies.time
    number = len(budget.counted) if by_host else steps
    cost = per_step("fetching" if by_host else "copying", time, number)
    evidence = [cost, window_share(share)]
    if budget.counted:
        evidence.append(Quantity("fetches a step", budget.fetches.number / len(budget.counted)))
    if copies.number and steps:
        evidence.append(Quantity("copies a step", copies.number / steps))
    return Finding(
        code="HS104",
        name="device-to-host-copy",
        category=Category.SYNC,
        severity=limits.severity(share),
        message="arrays are copied to the host in every step",
        site=site_of_frame(budget.fetches.caller),
        evidence=tuple(evidence),
        cost=cost,
        fix="Fetch every so many steps, all of it in one jax.device_get, and reduce it on the "
        "device before.",
        notes=called_from(budget.fetches),
    )
