"""``hloscope kernels``."""

from __future__ import annotations

from typing import Annotated

import typer

from hloscope.cli.kernel_options import CaseOptions, CompileOptions
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, spread
from hloscope.cli.output import print_report
from hloscope.cli.progress import PhaseProgress
from hloscope.errors import UsageError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope kernels
hloscope kernels attention --target h100 --shape b4,s1024,h8,d64
hloscope kernels attention --target v5e --shape s4096,causal=1 --backward
hloscope audit kernel:attention/xla/b4,s1024,h8,d64 --target h100
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def kernels(
    options: CompileOptions,
    chosen: CaseOptions,
    output: OutputOptions,
    family: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY", show_default=False, help="Which kernels; without it, a list of all."
        ),
    ] = None,
) -> int:
    """Kernels in several implementations, and what XLA makes of them.

    Without a FAMILY, what there is and what cpu, h100 and v5e (or --target) take of it.
    With one, each implementation compiled for the target: the route that XLA took, custom
    calls, FLOPs, temporaries and kernels launched.
    """
    from hloscope.api import compare_kernels, list_kernels

    if family is None:
        for name, value in (
            ("--shape", chosen.shape),
            ("--set", chosen.settings),
            ("--impl", chosen.implementations),
            ("--dtype", chosen.dtype),
            ("--backward", chosen.backward),
        ):
            if value:
                raise UsageError(
                    f"{name} goes with a family only", hint="Name one: hloscope kernels attention."
                )
        named = {"targets": [options.target]} if options.target else {}
        return print_report(list_kernels(**named), as_json=output.json)
    with PhaseProgress() as progress:
        report = compare_kernels(
            family,
            shape=chosen.shape or "",
            switches=chosen.settings,
            implementations=chosen.implementations,
            dtype=chosen.dtype,
            backward=chosen.backward,
            progress=progress,
            **options.load_options(),
        )
    return print_report(report, as_json=output.json)
