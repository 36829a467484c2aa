"""``hloscope explain``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, spread
from hloscope.cli.output import print_report

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope explain HS701
hloscope explain large-constant
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def explain(
    output: OutputOptions,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            show_default=False,
            help="Such as HS701, or the rule's name; all rules are listed without.",
        ),
    ] = None,
) -> int:
    """What a rule looks for, and what to do."""
    from hloscope.pipeline.loading import load_passes
    from hloscope.pipeline.rules import explain as find_rule

    load_passes()
    if code is None:
        from hloscope.listings import rules

        return print_report(rules(), as_json=output.json)
    found = find_rule(code)
    if output.json:
        from hloscope.report import json

        json.write(json.rule_document(found), sys.stdout)
    else:
        from hloscope.report import terminal

        terminal.write_rule(found, sys.stdout)
    return 0
