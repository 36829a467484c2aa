"""``hloscope check``: one sub-command a check."""

from __future__ import annotations

from functools import partial

import typer

from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def check() -> None:
    """Checks for CI: exit 0 when one holds, 1 when it does not."""


@app.command(cls=SectionedCommand)
@spread
def donation(options: SourceOptions, output: OutputOptions) -> int:
    """Every leaf of the training state shares its buffer with a result.

    Exits 0 when all of them do, and 1 with the leaves that do not, and why.

    \b
    hloscope check donation --arch unet --target h100
    hloscope check donation train.py:step
    """
    import hloscope

    return answer(partial(hloscope.check, "donation"), options, output)
