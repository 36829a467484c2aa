"""``hloscope draw``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread
from hloscope.drawing.view import DEPTH, HOPS, View

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope draw --arch causal_transformer --preset smoke --view remat -o remat.svg
hloscope draw step.hlo --view scope --depth 2 -o scope.svg
hloscope draw step.hlo --around fusion.12 --hops 2 -o near.png
"""

_VIEWS = ", ".join(view for view in View if view is not View.AROUND)


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def draw(
    options: SourceOptions,
    output: OutputOptions,
    file: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help="Where to write it, as .svg, .png or .dot.",
        ),
    ] = "",
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            metavar="V",
            show_default=False,
            help=f"What to show: {_VIEWS}; scope by default.",
        ),
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(
            "--around", metavar="NAME", help="Show the neighbourhood of an instruction instead."
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            metavar="N",
            min=1,
            show_default=False,
            help=f"Parts of a scope that tell one box from another; {DEPTH} by default.",
        ),
    ] = None,
    hops: Annotated[
        int | None,
        typer.Option(
            "--hops",
            metavar="N",
            min=0,
            show_default=False,
            help=f"How far around the instruction; {HOPS} by default.",
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside",
            metavar="SOURCE",
            show_default=False,
            help="With --view remat: the same step without it. Of an --arch it is compiled.",
        ),
    ] = None,
) -> int:
    """Graphviz pictures of the program, for docs.

    remat: what a layer keeps for its backward pass and what it computes again,
    beside the same step without; scope: the program by the names in its code.
    """
    import hloscope
    from hloscope.errors import UsageError

    if not file and not options.list_modules:
        raise UsageError(
            "nothing says where the picture goes", place="-o", hint="Give -o FILE.svg."
        )
    drawing = partial(
        hloscope.draw,
        output=file,
        view=view,
        around=around,
        depth=depth,
        hops=hops,
        beside=beside,
    )
    return answer(drawing, options, output)
