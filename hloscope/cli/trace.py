"""``hloscope trace``."""

from __future__ import annotations

from typing import Annotated

import typer

from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, spread
from hloscope.cli.output import print_report
from hloscope.cli.progress import PhaseProgress

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope trace profile_dir/
hloscope trace profile_dir/ --by kernel --top 0
hloscope trace profile_dir/ --steps
hloscope trace host.xplane.pb --json
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def trace(
    output: OutputOptions,
    source: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE",
            show_default=False,
            help="What jax.profiler.trace wrote: its folder, one .xplane.pb, or a .trace.json.gz.",
        ),
    ],
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="NAME", show_default=False, help="Run; the newest if left out."
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="WHAT",
            help="List time by category, kernel, op, scope, source, module or stream.",
        ),
    ] = "category",
    steps: Annotated[
        bool, typer.Option("--steps", help="List every step: wall, busy, gap, host.")
    ] = False,
    window: Annotated[
        str,
        typer.Option(
            "--window",
            metavar="WHICH",
            help="What counts: all, steady, a step, or steps 3-9; auto is steady where known.",
        ),
    ] = "auto",
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="Rows of a table; 0 for all.")
    ] = 20,
) -> int:
    """What devices really did, from a profile.

    How long each was busy, as the union of what ran on all of its lines; what the
    time was spent on; and the steps.
    """
    import hloscope

    with PhaseProgress() as progress:
        report = hloscope.trace(
            source, run=run, by=by, window=window, steps=steps, top=top, progress=progress
        )
    return print_report(report, as_json=output.json)
