"""HS601."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.idle_causes import (
    IdleCause,
    idle_in,
    per_step,
    severity_of_idle,
    site_of_frame,
    window_share,
)
from hloscope.pipeline.findings import Category, Finding
from hloscope.pipeline.rules import Limits, rule
from hloscope.traces.host_kinds import HostKind
from hloscope.traces.summary import Trace

__all__ = ["input_bound"]


@rule("HS601", "input-bound", Category.DATA_PATH)
def input_bound(trace: Trace, limits: Limits) -> Iterator[Finding]:
    """Finds devices that wait for the next batch.

    What it does:
        Takes the time in which a device was idle and looks what the thread that
        drives it did then: in a data pipeline (an iterator's ``__next__``, the
        loaders of torch, tf.data and grain, a queue that other threads fill), or
        anywhere between two annotated steps where no call of JAX is open. The
        latter need not be input: the finding says which of the two it is, and
        names what took longest. Listed from ``traced_share`` (2%) of the window
        on, for the device that waits most.

    Why it costs:
        The device does nothing meanwhile.

    Example:
            for batch in loader:                  # decodes images in this very thread
                params, loss = step(params, batch)

    Use instead:
        Prepare batches in other threads or processes, a few ahead, and place
        them on the device before they are needed:

            loader = grain.DataLoader(..., worker_count=8)
            for batch in flax.jax_utils.prefetch_to_device(iter(loader), 2):
                ...

        Then see whether one machine can decode as fast as the step eats: if not,
        store what is decoded.
    """
    cause = idle_in(trace, (HostKind.INPUT, HostKind.BETWEEN))
    if cause is not None and cause.share >= limits.traced_share:
        yield _finding(cause, limits)


def _finding(cause: IdleCause, limits: Limits) -> Finding:
    cost = per_step("idle", cause.time, cause.steps)
    known = cause.first is HostKind.INPUT
    event, frame = _longest(cause)
    if known:
        message = "the device waits for the input pipeline"
        fix = "Prepare batches in other threads or processes, some ahead of the step."
    else:
        message = "the device waits for what the loop does between steps, input or other"
        fix = (
            "If it is input, prepare batches in other threads or processes; else move it there, or "
            "do it every so many steps."
        )
    return Finding(
        code="HS601",
        name="input-bound",
        category=Category.DATA_PATH,
        severity=severity_of_idle(cause, limits),
        message=message,
        site=site_of_frame(frame),
        evidence=(cost, window_share(cause.share)),
        cost=cost,
        fix=fix,
        notes=(_note(event, frame),) if event else (),
    )


def _note(event: str, frame: str) -> str:
    within = f", in {frame.rpartition(' ')[2]}" if frame and frame != event else ""
    return f"longest in {event}{within}"


def _longest(cause: IdleCause) -> tuple[str, str]:
    """What most of the longest gaps of that kind lay in, and the user's frame around it."""
    events: dict[tuple[str, str], int] = {}
    for gap in cause.pace.gaps:
        # A call that only begins or ends in the gap is not where it was spent.
        if gap.kind in cause.times and gap.event and 2 * gap.covered >= gap.length:
            named = gap.event, gap.frame
            events[named] = events.get(named, 0) + gap.covered
    if events:
        return max(events, key=events.__getitem__)
    budget = cause.host.budget
    return (budget.between if budget is not None else ""), ""
