"""A report as aligned text: the verdict first, then the evidence, the fix last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TextIO

from hloscope import units
from hloscope.pipeline.findings import (
    Finding,
    Quantity,
    Report,
    Severity,
    Status,
    Text,
    Trust,
    Verdict,
)
from hloscope.pipeline.rules import Rule
from hloscope.report.quantities import basis_text, quantity_text, value_text
from hloscope.report.screen import Screen
from hloscope.report.shortening import shorten
from hloscope.report.tables import draw_table

__all__ = ["SHOWN_PER_CODE", "write", "write_rule"]

SHOWN_PER_CODE = 10
"""Findings of one code that are printed in full; the JSON document has them all."""

_SEVERITY = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_STATUS = {Status.FOUND: "yellow", Status.NONE_FOUND: "green", Status.NOT_CHECKED: "dim"}
_LABEL = 11  # "  evidence " in front of every line of a finding


def write(
    report: Report, stream: TextIO, *, width: int | None = None, color: bool | None = None
) -> None:
    """Write a report for people.

    Args:
        report: What to write.
        stream: Where to.
        width: Columns; the terminal's, or 80 where there is none.
        color: Whether to colour; by default only on a terminal without ``NO_COLOR``.
    """
    screen = Screen(stream, width=width, color=color)
    _head(screen, report)
    if report.verdicts:
        screen.blank()
        for verdict in report.verdicts:
            _verdict(screen, verdict, report.findings)
    _findings(screen, report.findings)
    for table in report.tables:
        screen.blank()
        draw_table(screen, table)
    if report.trust is not None or report.notes:
        screen.blank()
    if report.trust is not None:
        _trust(screen, report.trust)
    for note in report.notes:
        screen.hanging([("note: ", "dim")], note)
    for failure in report.failures:
        screen.hanging([("failed: ", "bold red")], failure)


def write_rule(
    rule: Rule, stream: TextIO, *, width: int | None = None, color: bool | None = None
) -> None:
    """Write what a rule looks for, section by section."""
    screen = Screen(stream, width=width, color=color)
    screen.line((rule.code, "bold"), f" {rule.name}")
    screen.line(f"class {rule.category.number}: {rule.category.title}")
    if rule.summary:
        screen.blank()
        screen.hanging([], _plain(rule.summary))
    for title, text in rule.sections.items():
        screen.blank()
        screen.line((title, "bold"))
        for line in text.splitlines():
            screen.line("  ", _plain(line))


def _plain(text: str) -> str:
    """Docstring text without the marks around code."""
    return text.replace("``", "")


def _head(screen: Screen, report: Report) -> None:
    style = "bold" if report.passed is None else "bold green" if report.passed else "bold red"
    if report.summary:
        screen.hanging([], report.summary, style)
    facts = [(key, _cell(value)) for key, value in report.header.items()]
    if report.subject:
        facts.insert(0, ("subject", report.subject))
    if not facts:
        return
    screen.blank()
    label = max(len(key) for key, _ in facts) + 2
    for key, text in facts:
        screen.hanging([(key.ljust(label), "dim")], text)


def _verdict(screen: Screen, verdict: Verdict, findings: Sequence[Finding]) -> None:
    mine = [finding for finding in findings if finding.category is verdict.category]
    parts = []
    if verdict.status is Status.FOUND:
        noun = "finding" if len(mine) == 1 else "findings"
        parts.append(f"{len(mine)} {noun}{_largest(mine)}")
    if verdict.reason:
        parts.append(verdict.reason)
    head = [
        (f"{verdict.category.number}  ", "dim"),
        (verdict.category.title.ljust(23), ""),
        (verdict.status.value.ljust(13), _STATUS[verdict.status]),
    ]
    body_style = "dim" if verdict.status is Status.NOT_CHECKED else ""
    screen.hanging(head, "; ".join(parts), body_style)


def _largest(findings: Sequence[Finding]) -> str:
    """What is at stake in the worst one; costs of several may overlap, so none is summed."""
    costs = [f.cost for f in findings if f.cost is not None]
    known = [cost for cost in costs if cost.value is not None]
    if not known:
        return ""
    same_unit = [cost for cost in known if cost.unit is known[0].unit]
    worst = max(same_unit, key=lambda cost: cost.value or 0)
    return f", {'largest ' if len(findings) > 1 else ''}{quantity_text(worst)}"


def _findings(screen: Screen, findings: Sequence[Finding]) -> None:
    left_out: dict[str, int] = {}
    shown: dict[str, int] = {}
    for finding in findings:
        if shown.get(finding.code, 0) == SHOWN_PER_CODE:
            left_out[finding.code] = left_out.get(finding.code, 0) + 1
            continue
        shown[finding.code] = shown.get(finding.code, 0) + 1
        screen.blank()
        _finding(screen, finding)
    if left_out:
        screen.blank()
    for code, number in left_out.items():
        screen.line(f"and {number} more {code}, listed by --json")


def _finding(screen: Screen, finding: Finding) -> None:
    head = [
        (finding.code, "bold"),
        (" ", ""),
        (finding.severity.value, _SEVERITY[finding.severity]),
    ]
    screen.hanging([*head, (": ", "")], finding.message)
    site = finding.site
    room = screen.width - _LABEL
    place = f"{site.file}:{site.line}" if site.file and site.line else site.file
    hlo = site.instruction and (
        f"%{site.instruction} in {site.computation}" if site.computation else f"%{site.instruction}"
    )
    for label, text, kind in (
        ("at", place, Text.SOURCE),
        ("scope", site.op_name, Text.PATH),
        ("leaf", site.leaf, Text.PATH),
        ("hlo", hlo or site.computation, Text.NAME),
    ):
        if text:
            _labelled(screen, label, shorten(text, room, kind))
    quantities = list(finding.evidence)
    if finding.cost is not None and not any(q.name == finding.cost.name for q in quantities):
        quantities.append(finding.cost)
    if quantities:
        _labelled(screen, "evidence", _evidence(quantities))
    for note in finding.notes:
        _labelled(screen, "note", note)
    if finding.fix:
        _labelled(screen, "fix", finding.fix)


def _evidence(quantities: Sequence[Quantity]) -> str:
    """Quantities by name; where several in a row are known in one way, that is said once."""
    parts = []
    for basis, group in groupby(quantities, key=basis_text):
        run = list(group)
        text = ", ".join(f"{quantity.name} {value_text(quantity)}" for quantity in run)
        if basis:
            of_all = {1: "", 2: "both "}.get(len(run), f"all {len(run)} ")
            text += f" ({of_all}{basis})"
        parts.append(text)
    return ", ".join(parts)


def _labelled(screen: Screen, label: str, text: str) -> None:
    screen.hanging([(f"  {label}".ljust(_LABEL), "dim")], text)


def _trust(screen: Screen, trust: Trust) -> None:
    parts = [f"{units.count(trust.instructions)} instructions read"]
    for noun, total, known, what in (
        ("custom calls", trust.custom_calls, trust.custom_calls_understood, "understood"),
        ("loops", trust.loops, trust.loops_understood, "with a known trip count"),
    ):
        if total:
            parts.append(f"{units.count(known)} of {units.count(total)} {noun} {what}")
        else:
            parts.append(f"no {noun}")
    if trust.traced is not None:
        parts.append(f"{units.share(trust.traced)} of the traced time is the program's")
    screen.hanging([("trust: ", "dim")], "; ".join(parts) + ".")
    for note in trust.notes:
        screen.hanging([("       ", "")], note)


def _cell(value: str | Quantity) -> str:
    return quantity_text(value) if isinstance(value, Quantity) else value
