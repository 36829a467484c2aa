"""HS508."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.traced_short_kernels import ShortKernels, ShortLine
from hloscope.pipeline.findings import Category, Finding, Quantity, Site, Unit
from hloscope.pipeline.rules import Limits, rule
from hloscope.traces.summary import Trace

__all__ = ["small_kernels_dominate"]

_MOST = 0.5  # of all launches
_FEWEST = 100  # a handful of kernels is no step
_NAMED = 3


@rule("HS508", "small-kernels-dominate", Category.REDUNDANT_WORK)
def small_kernels_dominate(
    trace: Trace,
    short: ShortKernels,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds traces in which a GPU spends its time on launching short kernels.

    What it does:
        Looks at the kernels that a trace's GPUs ran in its window. A kernel is short
        that on average runs no longer than ``short_kernel_seconds`` (5 microseconds),
        which is about what the host takes to launch one. A finding is made where at
        least half of the launches are short, 100 of them at least, and the time of
        these together with the idle gaps right behind them comes to ``launch_share`` (a
        tenth) of the window. Gaps of more than 50 microseconds do not count: in these
        the host did something else. Copies and whole CUDA graphs are no kernels here.
        Only GPUs are looked at. HS506 looks for the same in loops without a trace.

    Why it costs:
        Each kernel has to be launched, starts with cold caches, and reads and writes
        memory that a fused one would not touch. When kernels run shorter than their
        launches take, the device waits for the host between them, and a faster chip
        does not help.

    Example:
            for w in weights:                     # a kernel or two for every tensor
                w_new = w - lr * m[w] / (jnp.sqrt(v[w]) + eps)

        Optimizers over hundreds of small tensors, loops of ``lax.scan`` with little work
        in an iteration, and small batches have such traces.

    Use instead:
        Fewer and larger kernels: a larger batch; one fused update over all parameters
        (``optax.flatten``, or parameters stacked by layer and ``lax.scan`` over them);
        ``lax.scan(..., unroll=8)``; or one kernel in Pallas. Where the host launches too
        slowly, CUDA graphs take it out of the way: ``xla_gpu_enable_command_buffer``,
        ``xla_gpu_graph_min_graph_size``.
    """
    if short.short < max(_FEWEST, _MOST * short.kernels) or short.share < limits.launch_share:
        return
    yield _finding(trace, short, limits)


def _finding(trace: Trace, short: ShortKernels, limits: Limits) -> Finding:
    first = short.lines[0]
    cost = Quantity(
        "time of short kernels and of gaps behind them", short.time + short.gaps, Unit.SECONDS
    )
    windows = dict.fromkeys(device.windows.chosen.name for device in trace.devices)
    notes = [_in_words(line, short) for line in short.lines[:_NAMED]]
    notes.append(f"in the trace's window: {' and '.join(windows)}")
    return Finding(
        code="HS508",
        name="small-kernels-dominate",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(short.share),
        message="most kernels are as short as their launch",
        site=instruction_site(first.instruction)
        if first.instruction is not None
        else Site(instruction=first.name),
        evidence=(
            Quantity("kernels", short.kernels),
            Quantity("short kernels", short.short),
            Quantity("time of short kernels", short.time, Unit.SECONDS),
            Quantity("idle gaps right behind them", short.gaps, Unit.SECONDS),
            Quantity("share of the window", short.share, Unit.SHARE),
        ),
        cost=cost,
        fix="Do the work in fewer, larger kernels.",
        notes=tuple(notes),
    )


def _in_words(line: ShortLine, short: ShortKernels) -> str:
    location = line.instruction.location if line.instruction is not None else None
    where = str(location) if location is not None else line.name
    return f"{where}: {line.number:,} of {short.short:,} short kernels"
