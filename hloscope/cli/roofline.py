"""``hloscope roofline``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.answers.roofline import SHOWN, Grouping
from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope roofline --arch unet --target h100
hloscope roofline step.hlo --chip v5e --top 30
hloscope roofline --arch causal_transformer --target v5e --by scope
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def roofline(
    options: SourceOptions,
    output: OutputOptions,
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="NAME",
            help="Chip to hold it against: for dumps, which do not say; else the target's.",
        ),
    ] = None,
    by: Annotated[
        Grouping, typer.Option("--by", metavar="WHAT", help="List by op, scope or source.")
    ] = Grouping.OP,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="How many lines; 0 for all.")
    ] = SHOWN,
) -> int:
    """How fast a chip could run it, and what bounds it.

    For each operation FLOPs, bytes and exchanges against the chip's peaks: the
    sum is a floor, no prediction. Where a TPU compiler left its own estimate,
    that stands beside it.
    """
    import hloscope

    return answer(partial(hloscope.roofline, chip=chip, by=by, top=top), options, output)
