"""Pages of the documentation that the rules' docstrings write themselves.

Run: python -m hloscope.report.rule_pages docs/rules
"""

from __future__ import annotations

import sys
from pathlib import Path

from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import RULES, Rule

__all__ = ["index_page", "pages", "rule_page"]

_CODE = ("Example",)
"""Sections whose text is code as a whole; elsewhere an indented block is."""


def rule_page(rule: Rule) -> str:
    """One rule as Markdown."""
    parts = [
        f"# {rule.code} {rule.name}",
        f"Class {rule.category.number}: {rule.category.title}.",
        rule.summary.replace("``", "`"),
    ]
    for title, text in rule.sections.items():
        body = f"```python\n{text}\n```" if title in _CODE else _fenced(text.replace("``", "`"))
        parts.append(f"## {title}\n\n{body}")
    return "\n\n".join(part for part in parts if part) + "\n"


def index_page(rules: list[Rule]) -> str:
    """All rules in one table."""
    rows = [
        f"| [{rule.code}]({rule.code}.md) | {rule.name} | {rule.category.title} | "
        f"{rule.summary.replace('``', '`')} |"
        for rule in rules
    ]
    head = ["# Rules", "", "| code | name | class | what it finds |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def pages() -> dict[str, str]:
    """File name to text, for every rule and their index."""
    load_passes()
    rules = list(RULES.values())
    return {f"{rule.code}.md": rule_page(rule) for rule in rules} | {"README.md": index_page(rules)}


def _fenced(text: str) -> str:
    """Turn indented blocks into fenced ones."""
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), "end"]:
        indented = line.startswith("    ")
        if indented and not inside:
            lines.append("```python")
        elif inside and line.strip() and not indented:
            while lines and not lines[-1]:
                lines.pop()
            lines += ["```", ""]
        inside = indented or (inside and not line.strip())
        lines.append(line[4:] if indented else line)
    return "\n".join(lines[:-1]).rstrip()


def main(folder: Path) -> None:
    """Write every page into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
