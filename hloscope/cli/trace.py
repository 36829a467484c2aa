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
hloscope trace profile_dir/ --plot timeline.svg
hloscope trace before/ --against after/ --fail-slower 5%
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
            help="List time by category, kernel, family, op, scope, source, module or stream.",
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
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", show_default=False, help="Only this one: GPU 3, or 3."
        ),
    ] = None,
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="NAME",
            show_default=False,
            help="What ran it, as `hloscope targets` lists them; as the profile says if left out.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="Rows of a table; 0 for all.")
    ] = 20,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Draw the window over time as SVG."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="PROFILE",
            show_default=False,
            help="A later run of the same step: say what changed from the first to it.",
        ),
    ] = None,
    fail_slower: Annotated[
        str | None,
        typer.Option(
            "--fail-slower",
            metavar="PERCENT",
            show_default=False,
            help="With --against: exit 1 where the median step is slower by more than this, "
            "and by more than the steps of either run vary.",
        ),
    ] = None,
) -> int:
    """What devices really did, from a profile.

    How long each was busy, as the union of what ran on all of its lines; what the
    time was spent on; and the steps.
    """
    import hloscope

    with PhaseProgress() as progress:
        report = hloscope.trace(
            source,
            run=run,
            by=by,
            window=window,
            device=device,
            steps=steps,
            top=top,
            plot=plot,
            against=against,
            fail_slower=_share(fail_slower) if fail_slower is not None else None,
            chip=chip,
            progress=progress,
        )
    return print_report(report, as_json=output.json)


def _share(percent: str) -> float:
    """The share in ``5`` or ``5%``."""
    from hloscope.errors import UsageError

    try:
        value = float(percent.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(
            f"{percent!r} is no share of a step", place="--fail-slower", hint="Give one as 5%."
        )
    return value / 100
