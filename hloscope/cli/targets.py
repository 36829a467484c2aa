"""``hloscope targets``: list, install, remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hloscope.cli.lazy import SectionedCommand, SectionedGroup
from hloscope.cli.options import OutputOptions, spread
from hloscope.cli.output import print_report
from hloscope.cli.progress import PhaseProgress

__all__ = ["app"]

EXAMPLES = """
hloscope targets
hloscope targets install h100 v5e
hloscope targets remove v5e
"""
INSTALL_EXAMPLES = """
hloscope targets install h100 v5e
hloscope targets install h100 --with-cudnn
hloscope targets install v5e --from wheels/
"""
REMOVE_EXAMPLES = """
hloscope targets remove h100
"""

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAMES...", show_default=False, help="Targets, such as h100 or v5e."),
]

app = typer.Typer(
    cls=SectionedGroup,
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    epilog=EXAMPLES,
)


@app.callback()
@spread
def targets(context: typer.Context, output: OutputOptions) -> int:
    """Chips to compile for; install or remove them.

    Without a command, lists the chips, which of them can be compiled for now,
    and the plug-ins in hloscope's cache.
    """
    if context.invoked_subcommand is not None:
        return 0
    from hloscope.targets import list_targets

    return print_report(list_targets(), as_json=output.json)


@app.command(cls=SectionedCommand, epilog=INSTALL_EXAMPLES)
@spread
def install(
    names: Names,
    output: OutputOptions,
    with_cudnn: Annotated[
        bool,
        typer.Option("--with-cudnn", help="Also cuDNN's library, for NVIDIA chips."),
    ] = False,
    wheels: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Take the wheels from a folder; no network."),
    ] = None,
) -> int:
    """Download what compiling for these chips takes.

    The plug-ins go into hloscope's cache, in the versions that fit the installed
    jaxlib, and not into your environment. A plug-in that is there stays.
    """
    from hloscope.targets import install_targets

    with PhaseProgress() as progress:
        report = install_targets(
            names,
            with_cudnn=with_cudnn,
            wheels=wheels,
            progress=lambda line: progress("install", None, line),
        )
    return print_report(report, as_json=output.json)


@app.command(cls=SectionedCommand, epilog=REMOVE_EXAMPLES)
@spread
def remove(names: Names, output: OutputOptions) -> int:
    """Delete these chips' plug-ins from hloscope's cache.

    Chips of one vendor share a plug-in, and so lose it together.
    """
    from hloscope.targets import remove_targets

    return print_report(remove_targets(names), as_json=output.json)
