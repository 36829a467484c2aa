"""Hands what a command has to say to the renderer that was asked for."""

from __future__ import annotations

import shutil
import sys
import textwrap

from hloscope.errors import HloscopeError
from hloscope.pipeline.findings import Report, Severity

__all__ = ["exit_code", "print_error", "print_report"]


def print_report(report: Report, *, as_json: bool, fail_on: Severity | None = None) -> int:
    """Write a report to stdout, what failed inside to stderr.

    Returns:
        The exit code, see :func:`exit_code`.
    """
    if as_json:
        from hloscope.report import json

        json.write(json.report_document(report), sys.stdout)
    else:
        from hloscope.report import terminal

        terminal.write(report, sys.stdout)
    sys.stdout.flush()
    for failure in report.failures:
        print(f"error: {failure}", file=sys.stderr)
    return exit_code(report, fail_on)


def exit_code(report: Report, fail_on: Severity | None = None) -> int:
    """2 when part of hloscope failed, 1 when a gate does not hold, 0 otherwise.

    Args:
        report: What was found.
        fail_on: The least severity of a finding that makes it 1.
    """
    if report.failures:
        return 2
    if report.passed is False:
        return 1
    gated = fail_on is not None and any(f.severity.rank >= fail_on.rank for f in report.findings)
    return 1 if gated else 0


def print_error(error: HloscopeError, *, as_json: bool) -> None:
    """Say what went wrong, where, and what to try: on stderr, and as JSON on stdout."""
    if as_json:
        from hloscope.report import json

        json.write(json.error_document(error), sys.stdout)
        sys.stdout.flush()
    head = f"{error.place}: {error.message}" if error.place else error.message
    _say(f"error: {head}")
    if error.detail:
        print(error.detail, file=sys.stderr)
    if error.hint:
        _say(f"hint: {error.hint}")


def _say(text: str) -> None:
    """One line on stderr; on a terminal as many as it takes, cut between words."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = textwrap.wrap(
            text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        text = "\n".join(lines)
    print(text, file=sys.stderr)
