import io
import json
import re
from pathlib import Path

import pytest

from hloscope.errors import CaptureError, HloscopeError, ParseError, UsageError
from hloscope.pipeline.findings import Category
from hloscope.pipeline.rules import SECTIONS, Rule
from hloscope.report.json import error_document, report_document, rule_document, write

PAGE = Path(__file__).parents[2] / "docs" / "json.md"


def written(document):
    stream = io.StringIO()
    write(document, stream)
    return json.loads(stream.getvalue())


@pytest.fixture
def rule():
    sections = {title: f"about {title}" for title in SECTIONS}
    return Rule(
        "HS301", "large-constant", Category.BAKED_CONSTANTS, iter, "Large literals.", sections
    )


def keys(document, *, free=("header",)):
    """Every key anywhere in a document; those inside a free-form object are the user's."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            inner = list(value.values()) if key in free and isinstance(value, dict) else value
            yield from keys(inner)
    elif isinstance(document, list):
        for value in document:
            yield from keys(value)


def documented(schema):
    """Field names between back-ticks in the section of one schema."""
    section = PAGE.read_text().split(f"## `{schema}`\n")[1].split("\n## `")[0]
    return set(re.findall(r"`(\w+)`", section))


def test_every_key_that_is_written_is_documented(report, rule):
    error = ParseError("expected a shape", file="a.hlo", line=3, column=7, source="x")
    for document in (report_document(report), rule_document(rule), error_document(error)):
        found = set(keys(written(document)))
        assert found <= documented(document["schema"])


def test_every_documented_field_is_written(report, rule):
    error = HloscopeError("no")
    for document in (report_document(report), rule_document(rule), error_document(error)):
        section = PAGE.read_text().split(f"## `{document['schema']}`\n")[1].split("\n## `")[0]
        fields = set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))
        assert fields
        assert fields <= set(keys(written(document)))


def test_numbers_are_exact_and_carry_unit_and_basis(report):
    document = written(report_document(report))
    size, time, copies = document["findings"][0]["evidence"]
    assert size == {
        "name": "size",
        "value": 12_582_912,
        "unit": "B",
        "basis": "exact",
        "model": None,
    }
    assert (time["value"], time["basis"], time["model"]) == (0.0125, "modelled", "roofline")
    assert (copies["value"], copies["basis"]) == (None, "unknown")
    assert document["header"]["compile"]["value"] == 24.06
    assert document["header"]["target"] == "h100"


def test_an_audit_always_writes_nine_verdicts(report):
    verdicts = written(report_document(report))["verdicts"]
    assert [v["category"]["number"] for v in verdicts] == list(range(1, 10))
    assert {v["status"] for v in verdicts} == {"found", "none found", "not checked"}


def test_tables_keep_text_and_quantities_apart(report):
    table = written(report_document(report))["tables"][0]
    assert [column["unit"] for column in table["columns"]] == [None, "FLOP"]
    assert table["rows"][0][0] == "dot"
    assert table["rows"][0][1]["value"] == 3_100_000_000


def test_the_same_report_gives_the_same_bytes(report):
    first, second = io.StringIO(), io.StringIO()
    write(report_document(report), first)
    write(report_document(report), second)
    assert first.getvalue() == second.getvalue()
    assert first.getvalue().endswith("}\n")


def test_an_error_says_its_kind_and_place():
    error = ParseError("expected a shape", file="a.hlo", line=3, column=7, source="x = y", hint="?")
    document = written(error_document(error))
    assert document["schema"] == "hloscope.error/1"
    assert document["kind"] == "ParseError"
    assert (document["file"], document["line"], document["column"]) == ("a.hlo", 3, 7)
    assert document["place"] == "a.hlo:3:7"
    assert document["hint"] == "?"
    assert written(error_document(UsageError("no")))["line"] is None
    assert written(error_document(CaptureError("no", phase="trace")))["phase"] == "trace"


def test_a_rule_is_written_with_its_sections_in_order(rule):
    document = written(rule_document(rule))
    assert document["schema"] == "hloscope.rule/1"
    assert [section["title"] for section in document["sections"]] == list(SECTIONS)
