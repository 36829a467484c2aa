"""``hloscope flops``."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from hloscope.answers.flop_view import DEPTH, Grouping
from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread
from hloscope.cli.output import print_report
from hloscope.cli.progress import PhaseProgress
from hloscope.errors import UsageError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope flops --arch unet --target h100
hloscope flops --arch causal_transformer --by scope
hloscope flops step.hlo --top 30 --json
hloscope flops --all --target h100 --preset small
"""


class Causal(StrEnum):
    """How masked attention counts."""

    FULL = "full"
    HALF = "half"


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def flops(
    options: SourceOptions,
    output: OutputOptions,
    by: Annotated[
        Grouping | None,
        typer.Option(
            "--by",
            metavar="WHAT",
            help="Sum the products by scope, op, dtype, kind, source or computation.",
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option("--depth", metavar="N", min=1, help="Parts of a scope for --by scope.")
    ] = DEPTH,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=1, help="List the N dearest instructions (or groups of --by)."
        ),
    ] = None,
    causal: Annotated[
        Causal,
        typer.Option(
            "--causal",
            metavar="HOW",
            help="Attention under a mask: full counts every pair, half those it leaves.",
        ),
    ] = Causal.FULL,
    every: Annotated[
        bool, typer.Option("--all", help="One table of every architecture instead.")
    ] = False,
) -> int:
    """FLOPs of the optimized HLO beside XLA's count and the jaxpr's.

    Counts matrix products, convolutions and attention, also those inside
    library calls and loops, and says why the three counts differ. What could
    not be counted is listed.
    """
    import hloscope

    if every:
        return _survey(options, output, causal, given=by is not None or top is not None)
    produce = partial(
        hloscope.flops,
        by=by,
        depth=depth,
        top=top,
        causal=causal.value,
        everything=output.json,
    )
    return answer(produce, options, output)


def _survey(options: SourceOptions, output: OutputOptions, causal: Causal, *, given: bool) -> int:
    from hloscope.api import survey_flops

    for name, value in (
        ("SOURCE", options.source),
        ("--arch", options.arch),
        ("--by or --top", given),
        ("--module or --list", options.module or options.list_modules),
    ):
        if value:
            raise UsageError(
                f"{name} does not go with --all, which takes every architecture",
                hint="Leave one of them out.",
            )
    with PhaseProgress() as progress:
        load = options.load_options()
        load.pop("arch")
        load.pop("module")
        report = survey_flops(causal=causal.value, progress=progress, **load)
    return print_report(report, as_json=output.json)
