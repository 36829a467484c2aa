"""``hloscope archs``."""

from __future__ import annotations

import typer

from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, spread
from hloscope.cli.output import print_report

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope archs
hloscope audit --arch causal_transformer --preset smoke --set remat=full
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def archs(output: OutputOptions) -> int:
    """Architectures that --arch knows.

    With their presets, the options that --set takes and the axes that --mesh
    takes; the default of each stands first.
    """
    from hloscope.listings import archs as list_archs

    return print_report(list_archs(), as_json=output.json)
