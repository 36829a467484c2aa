"""``hloscope alias``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.answers.alias import SHOWN
from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope alias --arch unet --target h100
hloscope alias step.hlo --top 0
hloscope alias train.py:step --json
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def alias(
    options: SourceOptions,
    output: OutputOptions,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            show_default=False,
            help=f"How many rows a table has; 0 for all. {SHOWN} by default, all with --json.",
        ),
    ] = None,
) -> int:
    """Every parameter: whether a result has its buffer.

    Path, bytes, whether it was donated, and the result, or the reason why none.
    Also copies of aliased arguments, with what forces them, and results that
    could have had the buffer of an argument that was not donated.
    """
    import hloscope

    rows = top if top is not None else (0 if output.json else SHOWN)
    return answer(partial(hloscope.alias, top=rows), options, output)
