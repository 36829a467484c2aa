"""What hloscope knows of by name: architectures, chips and rules, as reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hloscope.pipeline.findings import Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import RULES

if TYPE_CHECKING:
    from hloscope.models.registry import ArchSpec

__all__ = ["arch", "archs", "rules"]

_NAME = Column("name", text=Text.WORD)


def archs() -> Report:
    """The architectures that ``--arch`` takes, and the antipatterns of all of them."""
    from hloscope.models import registry

    specs = [registry.get(name) for name in registry.names()]
    table = Table(
        "archs",
        "Architectures",
        (_NAME, Column("presets", text=Text.WORD), Column("what it is")),
        tuple((s.name, ", ".join(s.presets), s.description) for s in specs),
        "`hloscope archs NAME` lists the options, mesh axes and antipatterns of one.",
    )
    axes = dict.fromkeys(axis for spec in specs for axis in spec.axes)
    switches = {bad.name: bad for spec in specs for bad in spec.antipatterns}
    return Report(
        "archs",
        "",
        {},
        tables=(
            table,
            Table(
                "axes",
                "Axes of --mesh",
                (_NAME, Column("architectures")),
                tuple((axis, _names([s for s in specs if axis in s.axes])) for axis in axes),
            ),
            Table(
                "bad",
                "Antipatterns to build in, for --bad",
                (_NAME, Column("found by"), Column("architectures")),
                tuple(
                    (name, bad.rule, _names([s for s in specs if name in s.bad]))
                    for name, bad in sorted(switches.items())
                ),
            ),
        ),
    )


def arch(name: str) -> Report:
    """What one architecture takes.

    Raises:
        UsageError: There is no architecture of that name.
    """
    from hloscope.models import registry

    spec = registry.get(name)
    settings = Table(
        "settings",
        "Options, for --set; the default stands first",
        (Column("option", text=Text.WORD), Column("values, and what they change")),
        tuple((o.name, f"{', '.join(o.values)}; {o.help}") for o in spec.options),
    )
    antipatterns = Table(
        "bad",
        "Antipatterns to build in, for --bad",
        (_NAME, Column("found by"), Column("on"), Column("what it does wrong")),
        tuple(
            (bad.name, bad.rule, bad.targets or "every target", bad.help)
            for bad in spec.antipatterns
        ),
    )
    header = {
        "what it is": spec.description,
        "presets": ", ".join(spec.presets),
        "mesh axes": ", ".join(spec.axes),
    }
    return Report("archs", spec.name, header, tables=(settings, antipatterns))


def _names(specs: Sequence[ArchSpec]) -> str:
    from hloscope.models import registry

    return "all" if len(specs) == len(registry.names()) else ", ".join(s.name for s in specs)


def rules() -> Report:
    """The rules that the audit runs."""
    load_passes()
    table = Table(
        "rules",
        "Rules",
        (Column("code"), Column("name"), Column("class"), Column("what it looks for")),
        tuple((r.code, r.name, r.category.title, r.summary) for r in RULES.values()),
    )
    number = Quantity("rules", len(RULES), Unit.COUNT)
    return Report("explain", "", {"rules": number}, tables=(table,))
