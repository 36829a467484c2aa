"""A report as a versioned JSON document; ``docs/json.md`` describes every field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TextIO

from hloscope.errors import CaptureError, HloscopeError, ParseError
from hloscope.pipeline.findings import Finding, Quantity, Report, Table, Verdict
from hloscope.pipeline.rules import Rule

__all__ = [
    "ERROR_SCHEMA",
    "REPORT_SCHEMA",
    "RULE_SCHEMA",
    "error_document",
    "report_document",
    "rule_document",
    "write",
]

REPORT_SCHEMA = "hloscope.report/1"
RULE_SCHEMA = "hloscope.rule/1"
ERROR_SCHEMA = "hloscope.error/1"

Document = dict[str, Any]


def write(document: Document, stream: TextIO) -> None:
    """Write a document as indented UTF-8-safe JSON with a newline at its end."""
    json.dump(document, stream, indent=2, allow_nan=False)
    stream.write("\n")


def report_document(report: Report) -> Document:
    """All that a report holds, with exact numbers."""
    trust = report.trust
    return {
        "schema": REPORT_SCHEMA,
        "command": report.command,
        "subject": report.subject,
        "summary": report.summary,
        "passed": report.passed,
        "header": {key: _cell(value) for key, value in report.header.items()},
        "verdicts": [_verdict(verdict) for verdict in report.verdicts],
        "findings": [_finding(finding) for finding in report.findings],
        "tables": [_table(table) for table in report.tables],
        "trust": None
        if trust is None
        else {
            "instructions": trust.instructions,
            "custom_calls": trust.custom_calls,
            "custom_calls_understood": trust.custom_calls_understood,
            "loops": trust.loops,
            "loops_understood": trust.loops_understood,
            "traced": trust.traced,
            "notes": list(trust.notes),
        },
        "notes": list(report.notes),
        "failures": list(report.failures),
        "suppressed": [
            {"by": one.by, "finding": _finding(one.finding)} for one in report.suppressed
        ],
    }


def rule_document(rule: Rule) -> Document:
    """What a rule looks for, section by section."""
    return {
        "schema": RULE_SCHEMA,
        "code": rule.code,
        "name": rule.name,
        "category": {"number": rule.category.number, "title": rule.category.title},
        "summary": rule.summary,
        "sections": [{"title": title, "text": text} for title, text in rule.sections.items()],
    }


def error_document(error: HloscopeError) -> Document:
    """Why the tool could not do its job."""
    parse = error if isinstance(error, ParseError) else None
    return {
        "schema": ERROR_SCHEMA,
        "kind": type(error).__name__,
        "message": error.message,
        "place": error.place,
        "file": parse.file if parse else None,
        "line": parse.line if parse else None,
        "column": parse.column if parse else None,
        "phase": error.phase if isinstance(error, CaptureError) else None,
        "detail": error.detail,
        "hint": error.hint,
    }


def _verdict(verdict: Verdict) -> Document:
    return {
        "category": {"number": verdict.category.number, "title": verdict.category.title},
        "status": verdict.status.value,
        "reason": verdict.reason,
        "rules": list(verdict.rules),
    }


def _finding(finding: Finding) -> Document:
    site = finding.site
    return {
        "code": finding.code,
        "name": finding.name,
        "category": {"number": finding.category.number, "title": finding.category.title},
        "severity": finding.severity.value,
        "message": finding.message,
        "site": {
            "computation": site.computation,
            "instruction": site.instruction,
            "op_name": site.op_name,
            "file": site.file,
            "line": site.line,
            "leaf": site.leaf,
        },
        "evidence": [_quantity(quantity) for quantity in finding.evidence],
        "cost": None if finding.cost is None else _quantity(finding.cost),
        "fix": finding.fix,
        "notes": list(finding.notes),
    }


def _table(table: Table) -> Document:
    return {
        "name": table.name,
        "title": table.title,
        "columns": [
            {"title": column.title, "unit": None if column.unit is None else column.unit.value}
            for column in table.columns
        ],
        "rows": _rows(table.rows),
        "note": table.note,
    }


def _rows(rows: Sequence[Sequence[str | Quantity]]) -> list[list[str | Document]]:
    return [[_cell(cell) for cell in row] for row in rows]


def _cell(value: str | Quantity) -> str | Document:
    return _quantity(value) if isinstance(value, Quantity) else value


def _quantity(quantity: Quantity) -> Document:
    return {
        "name": quantity.name,
        "value": quantity.value,
        "unit": quantity.unit.value,
        "basis": quantity.basis.value,
        "model": quantity.model,
    }
