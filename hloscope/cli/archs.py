"""``hloscope archs``."""

from __future__ import annotations

from typing import Annotated

import typer

from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, spread
from hloscope.cli.output import print_report

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope archs
hloscope archs causal_transformer
hloscope audit --arch causal_transformer --preset smoke --set remat=full
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def archs(
    output: OutputOptions,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="One of them; without it, all are listed.",
        ),
    ] = None,
) -> int:
    """Architectures that --arch knows, or what one of them takes.

    With a name, the presets and the options that --set takes, the default of
    each first, the axes that --mesh takes and the antipatterns that --bad
    builds in.
    """
    from hloscope import listings

    report = listings.archs() if name is None else listings.arch(name)
    return print_report(report, as_json=output.json)
