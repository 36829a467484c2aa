"""The rules' pages in docs/ come from their docstrings and are never out of date."""

from pathlib import Path

from hloscope.report.rule_pages import pages

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "rules"


def test_every_page_in_docs_is_what_the_rules_say_now():
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert written == pages(), "run: python -m hloscope.report.rule_pages docs/rules"


def test_code_blocks_open_and_close():
    for name, text in pages().items():
        assert text.count("```") % 2 == 0, name
