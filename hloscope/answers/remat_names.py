"""What a step's remat policies ask for by name, as tables, and which names match nothing."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.ir.named_points import Crossing, NamedPoint
from hloscope.passes.memory_spaces import Space
from hloscope.passes.named_residuals import BY_LINE, NamedResiduals, NamedValue
from hloscope.passes.remat_names import RematNames
from hloscope.passes.scopes import collapse_scope
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit
from hloscope.pipeline.session import Session

__all__ = ["array_text", "fate_in_jaxpr", "name_tables", "unmatched_names"]

_DEPTH = 2


def name_tables(session: Session, top: int) -> Iterator[Table]:
    """Give a table of the policies that know names, and one of the values that have names.

    Args:
        session: Gives the analyses.
        top: How many values are listed at most; 0 for all.
    """
    asked = session.find(RematNames)
    if asked is not None and asked.policies:
        yield Table(
            "asked names",
            "Names that policies ask for",
            (Column("policy"), Column("name"), Column("asked"), Column("found")),
            tuple(_asked(asked)),
        )
    named = session.find(NamedResiduals)
    if named is not None and named.values and named.policies:
        yield _values(named, top)


def unmatched_names(session: Session) -> str:
    """Say which names match nothing, and what they may be meant to be; empty where all do."""
    asked = session.find(RematNames)
    if asked is None or not asked.unmatched:
        return ""
    told = [_unmatched(asked, name) for name in asked.unmatched]
    text = f"No value of the step has the name {' or '.join(told)}"
    if any(each.keeps_nothing for each in asked.policies):
        text += ": the policy keeps nothing by name"
    return f"{text}."


def _unmatched(asked: RematNames, name: str) -> str:
    near = asked.nearest(name)
    return f"{name!r} (perhaps {near!r})" if near else repr(name)


def _asked(asked: RematNames) -> Iterator[tuple[str | Quantity, ...]]:
    for each in asked.policies:
        policy = each.policy
        for names, wanted in (
            (policy.saves, "keep"),
            (policy.offloads, "offload"),
            (policy.drops, "compute again"),
        ):
            for name in names:
                found = "yes"
                if name in each.unmatched:
                    near = asked.nearest(name)
                    found = f"matches nothing; perhaps {near}" if near else "matches nothing"
                yield policy.words.partition("(")[0], name, wanted, found


def _values(named: NamedResiduals, top: int) -> Table:
    order = sorted(named.values, key=lambda value: (-value.bytes, value.point.name))
    shown = order[:top] if top else order
    rows = [
        (
            value.point.name,
            _number(value),
            array_text(value.point),
            fate_in_jaxpr(value),
            _fate_in_hlo(value),
            Quantity("bytes", value.bytes, Unit.BYTES, Basis.MODELLED, BY_LINE),
            collapse_scope(f"{value.point.scope}/_", _DEPTH) or "-",
            f"{value.point.file}:{value.point.line}" if value.point.file else "-",
        )
        for value in shown
    ]
    left = len(order) - len(shown)
    return Table(
        "names",
        "Values that the step names",
        (
            Column("name"),
            Column("values", Unit.COUNT),
            Column("array", spare=True),
            Column("JAX"),
            Column("HLO"),
            Column("kept", Unit.BYTES),
            Column("scope", text=Text.PATH, spare=True),
            Column("named at"),
        ),
        tuple(rows),
        f"and {plural(left, 'more name')}; --top 0 lists all" if left else "",
    )


def _number(value: NamedValue) -> Quantity:
    if value.values is None:
        return Quantity("values", None, Unit.COUNT, Basis.UNKNOWN)
    return Quantity("values", value.values)


def array_text(point: NamedPoint) -> str:
    """One value's type and shape."""
    return f"{point.dtype}[{','.join(map(str, point.dimensions))}]"


def fate_in_jaxpr(value: NamedValue) -> str:
    """What the jaxpr does with it, which is exact; XLA may do otherwise."""
    if value.point.crossing is Crossing.KEPT:
        return "kept"
    if value.point.crossing is Crossing.LAST:
        return "the last one kept"
    return "recomputed" if value.recomputed else "not kept"


def _fate_in_hlo(value: NamedValue) -> str:
    """What the optimized module does with it, as far as lines and names tell."""
    spaces = {residual.buffer.space for residual in value.residuals}
    told = []
    if Space.HOST in spaces:
        told.append("offloaded")
    if spaces - {Space.HOST}:
        told.append("kept")
    if value.rebuilt:
        told.append("recomputed")
    return ", ".join(told) or "-"
