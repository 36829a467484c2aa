"""HS506."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.loop_launches import LoopLaunches, LoopRow
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["tiny_kernel_loop"]

_OVERHEAD = "1 us a launch, as XLA's own cost model of GPUs has it"
_WORK = "work at the roofline"
_TIMES = "each branch taken, loops of unknown length run once"


@rule("HS506", "tiny-kernel-loop", Category.REDUNDANT_WORK)
def tiny_kernel_loop(
    launches: LoopLaunches, trips: TripCounts, limits: Limits
) -> Iterator[Finding]:
    """Finds loops that spend their time on launching kernels, not on the work in them.

    What it does:
        Counts what each loop launches in a step, iterations multiplied, and holds
        the work of each launch on the roofline against the microsecond that XLA's
        own cost model of GPUs puts down for launching a kernel. A loop is listed
        where it launches ``loop_launches`` (1000) kernels or more and what they
        lack to a microsecond each comes to ``launch_share`` (a tenth) of the
        step's time. On chips that are no GPUs the rule does not look. A microsecond
        is what a launch takes at best, in a CUDA graph: the loss may be several
        times as large.

    Why it costs:
        A kernel that runs shorter than it takes to start the next leaves the device
        idle. The iterations of a loop wait for each other, so that nothing fills
        the gaps.

    Example:
            def masked_conv(x, kernel):                      # [time, width], [taps, ...]
                def tap(y, k):
                    return y + jnp.roll(x, k, 0) @ kernel[k], None
                return jax.lax.scan(tap, jnp.zeros_like(x), jnp.arange(taps))[0]

    Use instead:
        One operation over all iterations where they do not depend on each other:

            y = jax.lax.conv_general_dilated(x, kernel, ...)

        Where they do: move products that need no carry in front of the loop, use
        ``jax.lax.associative_scan``, put several steps into one iteration with
        ``jax.lax.scan(..., unroll=8)`` so that XLA can fuse them, or write the loop
        into one kernel (Pallas).
    """
    for row in launches.loops:
        share = row.overhead / launches.seconds if launches.seconds else 0.0
        if row.launches >= limits.loop_launches and share >= limits.launch_share:
            yield _finding(row, launches, trips, share, limits)


def _finding(
    row: LoopRow, launches: LoopLaunches, trips: TripCounts, share: float, limits: Limits
) -> Finding:
    overhead = Quantity(
        "time for launching alone", row.overhead, Unit.SECONDS, Basis.MODELLED, _OVERHEAD
    )
    trip = trips[row.dearest].count
    notes = [] if trip is None else [f"{row.dearest.name} runs {trip} times each time"]
    if row.dearest is not row.loop:
        notes.append(f"inside of {row.loop.name}")
    return Finding(
        code="HS506",
        name="tiny-kernel-loop",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(share),
        message="a loop launches many kernels with little work in each",
        site=instruction_site(row.dearest, line_of=row.launch),
        evidence=(
            Quantity("launches in the loop", row.launches, basis=Basis.MODELLED, model=_TIMES),
            Quantity("launches in the step", launches.launches, basis=Basis.MODELLED, model=_TIMES),
            overhead,
            Quantity("time of its work", row.work, Unit.SECONDS, Basis.MODELLED, _WORK),
            Quantity("share of the step", share, Unit.SHARE, Basis.MODELLED, _OVERHEAD),
        ),
        cost=overhead,
        fix="Compute all iterations in one operation, or more of them in one kernel.",
        notes=tuple(notes),
    )
