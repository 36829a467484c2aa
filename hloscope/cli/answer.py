"""What the commands that look at a program have in common."""

from __future__ import annotations

from collections.abc import Callable

from hloscope.cli.options import OutputOptions, SourceOptions
from hloscope.cli.output import print_report
from hloscope.cli.progress import PhaseProgress
from hloscope.pipeline.findings import Report, Severity

__all__ = ["answer"]


def answer(
    produce: Callable[..., Report],
    options: SourceOptions,
    output: OutputOptions,
    fail_on: Severity | None = None,
) -> int:
    """Have the API produce a report and print it, or list the modules if that was asked.

    Args:
        produce: A function of the API that takes a source and load options.
        options: What to look at.
        output: How to write it.
        fail_on: The least severity of a finding that makes the exit code 1.
    """
    from hloscope.api import list_modules

    with PhaseProgress() as progress:
        make = list_modules if options.list_modules else produce
        report = make(options.source, progress=progress, **options.load_options())
    return print_report(report, as_json=output.json, fail_on=fail_on)
