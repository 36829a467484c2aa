"""``hloscope check``: one sub-command a check."""

from __future__ import annotations

from functools import partial

import typer

from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand, SectionedGroup
from hloscope.cli.options import ConfigOptions, OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(
    cls=SectionedGroup, add_completion=False, rich_markup_mode=None, no_args_is_help=True
)


@app.callback()
def check() -> None:
    """Checks for CI: exit 1 when one does not hold."""


EXAMPLES = """
hloscope check donation --arch unet --target h100
hloscope check donation train.py:step
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def donation(options: SourceOptions, output: OutputOptions, config: ConfigOptions) -> int:
    """Every leaf of the state shares its buffer with a result.

    Exits 0 when all of them do, and 1 with the leaves that do not, and why.
    """
    import hloscope

    produce = partial(hloscope.check, "donation", config=config.load())
    return answer(produce, options, output)
