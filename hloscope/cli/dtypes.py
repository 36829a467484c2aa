"""``hloscope dtypes``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import ConfigOptions, OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope dtypes --arch causal_transformer --target h100
hloscope dtypes step.hlo --top 20
hloscope dtypes xla_dump_dir/ --json
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def dtypes(
    options: SourceOptions,
    output: OutputOptions,
    config: ConfigOptions,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", min=0, help="Rows of each table; 0 for all."),
    ] = None,
) -> int:
    """In which types it multiplies, converts and exchanges.

    Products by the types of their operands and sums; conversions and what they
    move; arguments converted again and again; exchanges in a wider type than
    needed; 64-bit lines; and whether quantizing gains anything.
    """
    import hloscope

    shown = 0 if output.json and top is None else top
    produce = partial(hloscope.dtypes, top=shown, config=config.load())
    return answer(produce, options, output)
