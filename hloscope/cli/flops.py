"""``hloscope flops``."""

from __future__ import annotations

import typer

from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope flops --arch unet --target h100
hloscope flops step.hlo --json
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def flops(options: SourceOptions, output: OutputOptions) -> int:
    """FLOPs of the optimized HLO beside XLA's own count.

    Counts matrix products and convolutions, also those inside library calls and
    loops, by kind, and sets them beside XLA's cost_analysis() with the ratio.
    What could not be counted is listed.
    """
    import hloscope

    return answer(hloscope.flops, options, output)
