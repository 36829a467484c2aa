"""``hloscope collectives``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.answers.collectives import SHOWN
from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope collectives --arch causal_transformer --target v5e:2x4
hloscope collectives train.py:step --target h100:8 --mesh data=2,model=4
hloscope collectives step.hlo --chip v6e --top 0
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def collectives(
    options: SourceOptions,
    output: OutputOptions,
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="NAME",
            help="Chip whose links it runs over: for dumps, which do not say; else the target's.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            show_default=False,
            help=f"How many exchanges are listed; 0 for all. {SHOWN} by default, all with --json.",
        ),
    ] = None,
) -> int:
    """What devices send each other, and what of it is exposed.

    Each exchange with its mesh axes, the bytes that one device sends, its runs,
    the part of the step and the leaf that it belongs to; and how much of its time
    the work that is scheduled beside it can hide.
    """
    import hloscope

    rows = top if top is not None else (0 if output.json else SHOWN)
    return answer(partial(hloscope.collectives, chip=chip, top=rows), options, output)
