"""``hloscope bench``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hloscope.cli.kernel_options import CaseOptions
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, spread
from hloscope.cli.output import print_report
from hloscope.cli.progress import PhaseProgress
from hloscope.kernel_commands import ROUNDS, SECONDS

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope bench attention --seq 256 1024 --dims 64 128
hloscope bench attention --shape b1,h4 --seq 512 --set causal=1 --backward
hloscope bench attention --shape b1,s128,h2 --interpret --json
"""

_LISTS = ("--seq", "--dims")


class _ListsCommand(SectionedCommand):
    """A command whose ``--seq 256 1024`` takes every number that follows it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write the flag before each of its numbers, as the parser wants it."""
        spelled: list[str] = []
        flag = None
        for word in args:
            if flag is not None and word.isdigit() and spelled[-1] != flag:
                spelled.append(flag)
            elif not word.isdigit():
                flag = word if word in _LISTS else None
            spelled.append(word)
        parsed: list[str] = super().parse_args(ctx, spelled)
        return parsed


@app.command(cls=_ListsCommand, epilog=EXAMPLES)
@spread
def bench(
    family: Annotated[
        str,
        typer.Argument(
            metavar="FAMILY", show_default=False, help="Which kernels; 'hloscope kernels' lists."
        ),
    ],
    chosen: CaseOptions,
    output: OutputOptions,
    lengths: Annotated[
        list[int] | None,
        typer.Option("--seq", metavar="N...", min=1, help="Lengths, in place of the shape's s."),
    ] = None,
    widths: Annotated[
        list[int] | None,
        typer.Option("--dims", metavar="N...", min=1, help="Widths, in place of the shape's d."),
    ] = None,
    interpret: Annotated[
        bool,
        typer.Option(
            "--interpret", help="Check the numbers of Pallas kernels that do not run here."
        ),
    ] = False,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=3, help="Timings of each.")
    ] = ROUNDS,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="S", min=0, help="What the timings of one may take together."
        ),
    ] = SECONDS,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="S",
            min=0.001,
            help="Give up a case, or a shape's oracle, after so many seconds.",
        ),
    ] = None,
) -> int:
    """Kernels timed here, each beside its errors.

    On the device at hand: times of every implementation, in turns; the errors of its
    result and of each gradient against float64; memory, kernels and the route that XLA
    took. What is wrong is said to be wrong and never the fastest.
    """
    from hloscope.api import bench as report_bench

    with PhaseProgress() as progress:
        report = report_bench(
            family,
            shape=chosen.shape or "",
            lengths=lengths or (),
            widths=widths or (),
            switches=chosen.settings,
            implementations=chosen.implementations,
            dtype=chosen.dtype,
            backward=chosen.backward,
            interpret=interpret,
            rounds=rounds,
            seconds=seconds,
            timeout=timeout,
            progress=progress,
        )
    return print_report(report, as_json=output.json)
