"""``hloscope audit``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import ConfigOptions, OutputOptions, SourceOptions, spread
from hloscope.pipeline.findings import Severity

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope audit --arch unet --target h100
hloscope audit train.py:step --fail-on warning
hloscope audit train.py:step --trace profile_dir/
hloscope audit xla_dump_dir/ --module jit_train_step
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def audit(
    options: SourceOptions,
    output: OutputOptions,
    config: ConfigOptions,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace",
            metavar="PROFILE",
            show_default=False,
            help="Profile of a run of the program: what jax.profiler.trace wrote.",
        ),
    ] = None,
    fail_on: Annotated[
        Severity | None,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            help="Exit 1 when a finding is a note, warning or error, or worse than that.",
        ),
    ] = None,
) -> int:
    """Nine classes of antipattern, each with a verdict.

    Every class is found, none found, or not checked with the reason. Exits 0
    after a report, whatever it says, unless --fail-on asks otherwise.
    """
    import hloscope

    produce = partial(hloscope.audit, config=config.load(), trace=trace)
    return answer(produce, options, output, fail_on)
