"""HS102."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.errors import Unavailable
from hloscope.passes.idle_causes import (
    called_from,
    driven_hosts,
    per_step,
    site_of_frame,
    window_share,
)
from hloscope.pipeline.findings import Category, Finding, Quantity
from hloscope.pipeline.rules import Limits, rule
from hloscope.traces.host_budget import HostBudget
from hloscope.traces.summary import DeviceSummary, Trace

__all__ = ["device_waits_each_step"]

_MOST = 0.5  # of the steps, from which the loop is said to wait each step
_MODEL = "at most: all idle time behind steps that were waited for"


@rule("HS102", "device-waits-each-step", Category.SYNC)
def device_waits_each_step(trace: Trace, limits: Limits) -> Iterator[Finding]:
    """Finds loops that ask for a step's results before they launch the next step.

    What it does:
        Follows the thread that drives the devices: a step is waited for when
        that thread asks for results (``block_until_ready``, ``float(loss)``,
        ``np.asarray``, ``device_get``) after it called the step, gets no answer
        before the device is done, and only then calls the next one. Where most
        steps are waited for, the time that the device idles behind them is
        listed from ``traced_share`` (2%) of the window on. That is the most that
        launching ahead can save.

    Why it costs:
        JAX returns from a call before the device has run it, so that Python
        prepares the next step meanwhile. A loop that asks for a value each step
        gives that up: the device waits while the value travels, Python wakes
        up, the next batch is placed and the next step is launched.

    Example:
            for batch in loader:
                params, loss = step(params, batch)
                losses.append(float(loss))          # waits for this very step

    Use instead:
        Keep the arrays and look at them later, or at those of the step before:

            for n, batch in enumerate(loader):
                params, loss = step(params, batch)
                losses.append(loss)                 # an array that may not be there yet
                if n % 100 == 99:
                    print(np.mean(jax.device_get(losses)))
    """
    hosts = driven_hosts(trace)
    if not any(_asked(device) for host, _ in hosts for device in host.devices):
        reasons = [d.pace.unknown for d in trace.devices if d.pace is not None and d.pace.unknown]
        raise Unavailable(
            f"the launches of steps are not told apart: {reasons[0]}"
            if reasons
            else "the trace shows fewer than two steps"
        )
    for host, budget in hosts:
        device = max(host.devices, key=_share)
        asked = _asked(device)
        often = len(asked) > 0 and sum(asked) >= _MOST * len(asked)
        if often and _share(device) >= limits.traced_share:
            yield _finding(device, budget, limits)


def _asked(device: DeviceSummary) -> list[bool]:
    """Of each step but the last, whether the host asked for it before it launched the next."""
    leads = device.pace.leads if device.pace is not None else ()
    return [lead.asked for lead in leads if lead.asked is not None]


def _share(device: DeviceSummary) -> float:
    """Of the window, what the device idles behind steps that were waited for."""
    length = device.windows.chosen.length
    return device.pace.waits / length if device.pace is not None and length else 0.0


def _finding(device: DeviceSummary, budget: HostBudget, limits: Limits) -> Finding:
    asked = _asked(device)
    waits = device.pace.waits if device.pace is not None else 0
    cost = per_step("idle", waits, sum(asked), _MODEL)
    return Finding(
        code="HS102",
        name="device-waits-each-step",
        category=Category.SYNC,
        severity=limits.severity(_share(device)),
        message="the loop waits for each step before it launches the next",
        site=site_of_frame(budget.questions.caller),
        evidence=(
            cost,
            window_share(_share(device), _MODEL),
            Quantity("steps waited for", sum(asked)),
            Quantity("of steps", len(asked)),
        ),
        cost=cost,
        fix="Keep results as arrays and look at them every so many steps, or at those of the step "
        "before.",
        notes=called_from(budget.questions),
    )
