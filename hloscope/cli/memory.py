"""``hloscope memory``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.answers.memory import AT_PEAK, SHOWN
from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope memory --arch unet --target h100
hloscope memory step.hlo --chip v5e --at peak --top 20 --plot timeline.svg
hloscope memory step.hlo --at fusion.12
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def memory(
    options: SourceOptions,
    output: OutputOptions,
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="NAME",
            help="Chip that it should fit: for dumps, which do not say; else the target's.",
        ),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="WHEN", help="List what lives at the peak or under an instruction."
        ),
    ] = AT_PEAK,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="How many buffers; 0 for all.")
    ] = SHOWN,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Draw memory over the schedule as SVG."),
    ] = None,
) -> int:
    """How much memory it takes, when most, and for what.

    Buffers over the schedule beside XLA's own figures, what lives at the peak,
    what the backward pass waits for, and whether the chip holds it.
    """
    import hloscope

    return answer(partial(hloscope.memory, chip=chip, at=at, top=top, plot=plot), options, output)
