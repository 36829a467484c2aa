"""Audit every architecture with each of its bad switches, as a user would, and compare.

Run: python tests/zoo/audit_switches.py [--preset small] [--target h100] [--arch ...] [--bad ...]

Limits are the default ones. A row says whether the rule that the switch names finds it,
and what else is new beside the good model: an error or a warning more is a fault, a note
more may be what stood there before, as a share of a smaller step. The table is Markdown.
The exit status is 1 where a rule is silent, another one warns, or a step does not compile.
About an hour on two cores at ``small`` on an h100; captures are kept in the cache.
"""

from __future__ import annotations

import argparse
import re
import sys

from hloscope import api
from hloscope.errors import HloscopeError
from hloscope.models import registry
from hloscope.models.antipatterns import ANTIPATTERNS
from hloscope.pipeline.findings import Finding, Severity

Key = tuple[str, str, str | None, int | None]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--target", default="h100")
    parser.add_argument("--arch", nargs="+", default=registry.names())
    parser.add_argument("--bad", nargs="+", default=sorted(ANTIPATTERNS))
    asked = parser.parse_args()
    faults = 0
    print("| arch | switch | rule | found | new besides |\n|---|---|---|---|---|", flush=True)
    for arch in asked.arch:
        switches = [bad for bad in registry.get(arch).bad if bad in asked.bad]
        good: set[Key] | None = None
        for bad in switches:
            rule = ANTIPATTERNS[bad].rule
            try:
                if good is None:
                    good = {_key(found) for found in _audit(arch, asked)}
                new = [each for each in _audit(arch, asked, bad) if _key(each) not in good]
            except HloscopeError as error:
                faults += 1
                print(f"| {arch} | {bad} | {rule} | {error.message} | |", flush=True)
                continue
            mine = [each for each in new if each.code == rule]
            others = [each for each in new if each.code != rule]
            faults += not mine or any(each.severity is not Severity.NOTE for each in others)
            found = ", ".join(sorted({each.severity.value for each in mine})) or "no"
            besides = ", ".join(sorted(f"{each.code} {each.severity.value}" for each in others))
            print(f"| {arch} | {bad} | {rule} | {found} | {besides} |", flush=True)
    return int(faults > 0)


def _audit(arch: str, asked: argparse.Namespace, *bad: str) -> tuple[Finding, ...]:
    report = api.audit(arch=arch, preset=asked.preset, target=asked.target, bad=bad)
    return tuple(report.findings)


def _key(found: Finding) -> Key:
    """What tells a finding from others; an array of another size is the same array."""
    return found.code, re.sub(r"\d+", "N", found.message), found.site.file, found.site.line


if __name__ == "__main__":
    sys.exit(main())
