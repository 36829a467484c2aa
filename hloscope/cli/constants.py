"""``hloscope constants``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.answers.constants import SHOWN
from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import ConfigOptions, OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope constants --arch unet
hloscope constants train.py:step --min 1024
hloscope constants step.hlo --json
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def constants(
    options: SourceOptions,
    output: OutputOptions,
    config: ConfigOptions,
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
    smallest: Annotated[
        int | None,
        typer.Option(
            "--min", metavar="BYTES", min=1, show_default=False, help="List from this size on."
        ),
    ] = None,
) -> int:
    """What is baked in: size, contents, name, line.

    Tells real data from splats and ramps, what the step closed over from what
    XLA folded, and lists arrays that JAX hoisted into arguments.
    """
    import hloscope

    rows = top if top is not None else (0 if output.json else SHOWN)
    produce = partial(
        hloscope.constants,
        top=rows,
        smallest=smallest,
        everything=output.json,
        config=config.load(),
    )
    return answer(produce, options, output)
