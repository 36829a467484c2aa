"""What hloscope knows of by name: architectures, chips and rules, as reports."""

from __future__ import annotations

from hloscope.pipeline.findings import Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import RULES

__all__ = ["archs", "rules"]


def archs() -> Report:
    """The architectures that ``--arch`` takes, and the options of each."""
    from hloscope.models import registry

    specs = [registry.get(name) for name in registry.names()]
    table = Table(
        "archs",
        "Architectures",
        (Column("name", text=Text.WORD), Column("presets", text=Text.WORD), Column("what it is")),
        tuple((s.name, ", ".join(s.presets), s.description) for s in specs),
    )
    settings = [
        Table(
            f"settings.{spec.name}",
            f"Options of {spec.name}, for --set",
            (Column("option", text=Text.WORD), Column("values"), Column("what it changes")),
            tuple((o.name, ", ".join(o.values), o.help) for o in spec.options),
        )
        for spec in specs
    ]
    switches = {bad.name: bad for spec in specs for bad in spec.antipatterns}
    antipatterns = Table(
        "bad",
        "Antipatterns to build in, for --bad",
        (
            Column("name"),
            Column("found by"),
            Column("on"),
            Column("what it does wrong"),
            Column("architectures"),
        ),
        tuple(
            (
                bad.name,
                bad.rule,
                bad.targets or "every target",
                bad.help,
                ", ".join(s.name for s in specs if bad.name in s.bad),
            )
            for _, bad in sorted(switches.items())
        ),
    )
    return Report("archs", "", {}, tables=(table, antipatterns, *settings))


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
