"""The constants of a program by size, as a report."""

from __future__ import annotations

from collections.abc import Sequence

from hloscope import units
from hloscope.passes.constants import Constant, Constants, Origin
from hloscope.pipeline.audit import AuditSubject, plural, trust_of
from hloscope.pipeline.findings import Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.session import Session

__all__ = ["SHOWN", "report_constants"]

SHOWN = 30
"""Constants that are listed unless asked otherwise."""


def report_constants(
    session: Session, subject: AuditSubject, *, top: int = SHOWN, everything: bool = False
) -> Report:
    """List what is baked into the executable, and what JAX hoisted out of it.

    Args:
        session: Gives the analyses; its limits say from which size on they are listed.
        subject: Gives the report its head.
        top: How many rows a table has at most; 0 for all.
        everything: Whether the list also names the instruction, and what tells
            the origin of each.

    Raises:
        AnalysisFailedError: The module could not be read.
    """
    constants = session.get(Constants)
    trust, missing = trust_of(session)
    tables = []
    if constants.constants:
        tables += [_kinds(constants), _list(constants, top, everything=everything)]
    if constants.hoisted:
        tables.append(_hoisted(constants, top))
    notes = [f"{origin}: {why}." for origin, why in _tellings(constants)]
    if constants.note:
        notes.append(f"contents unknown: {constants.note}.")
    if constants.origin_note:
        notes.append(f"names and origins unknown: {constants.origin_note}.")
    if missing:
        notes.append(missing)
    return Report(
        command="constants",
        subject=subject.name,
        header=subject.header(),
        tables=tuple(tables),
        trust=trust,
        summary=_summary(constants),
        notes=tuple(notes),
    )


def _summary(constants: Constants) -> str:
    size = units.byte_size(constants.total_bytes)
    text = f"{plural(constants.number, 'constant')} of {size} in the executable"
    floor = units.byte_size(constants.floor)
    if not constants.constants:
        return f"{text}, none of them as large as {floor}."
    data = [c for c in constants.constants if c.kind in ("data", "unknown")]
    text += f"; {len(constants.constants)} of {floor} or more"
    if not data:
        return f"{text}, none of them real data."
    unknown = " or unknown" if any(c.kind == "unknown" for c in data) else ""
    return f"{text}, {units.byte_size(sum(c.bytes for c in data))} of them real{unknown} data."


def _tellings(constants: Constants) -> Sequence[tuple[str, str]]:
    """What tells the origins that there are, each once."""
    known = (c for c in constants.constants if c.origin is not Origin.UNKNOWN)
    return list(dict.fromkeys((c.origin.value, c.known_by) for c in known))


def _kinds(constants: Constants) -> Table:
    groups: dict[tuple[str, str], list[Constant]] = {}
    for constant in constants.constants:
        groups.setdefault((constant.kind, constant.origin.value), []).append(constant)
    rows = sorted(groups.items(), key=lambda item: -sum(c.bytes for c in item[1]))
    return Table(
        "kinds",
        "What they are",
        (
            Column("contents"),
            Column("origin"),
            Column("constants", Unit.COUNT),
            Column("bytes", Unit.BYTES),
        ),
        tuple(
            (
                kind,
                origin,
                Quantity("constants", len(members)),
                Quantity("bytes", sum(c.bytes for c in members), Unit.BYTES),
            )
            for (kind, origin), members in rows
        ),
    )


def _list(constants: Constants, top: int, *, everything: bool) -> Table:
    shown: Sequence[Constant] = constants.constants[:top] if top else constants.constants
    left = len(constants.constants) - len(shown)
    further = (Column("instruction", text=Text.NAME), Column("how known")) if everything else ()
    return Table(
        "constants",
        f"Constants of {units.byte_size(constants.floor)} or more",
        (
            Column("bytes", Unit.BYTES),
            Column("array", text=Text.ARRAY),
            Column("contents"),
            Column("name", text=Text.PATH),
            Column("origin"),
            Column("copies", Unit.COUNT),
            Column("line", text=Text.SOURCE),
            *further,
        ),
        tuple(_row(constant, everything=everything) for constant in shown),
        f"and {left} more; --top 0 lists all" if left else "",
    )


def _row(constant: Constant, *, everything: bool) -> tuple[str | Quantity, ...]:
    location = constant.location
    further = (constant.instruction.name, constant.known_by or "-") if everything else ()
    return (
        Quantity("bytes", constant.bytes, Unit.BYTES),
        f"{constant.dtype}[{','.join(map(str, constant.dimensions))}]",
        constant.kind,
        ", ".join(constant.names) or "-",
        constant.origin.value,
        Quantity("copies", constant.duplicates + 1) if constant.digest else "?",
        str(location) if location is not None else "-",
        *further,
    )


def _hoisted(constants: Constants, top: int) -> Table:
    shown = constants.hoisted[:top] if top else constants.hoisted
    left = len(constants.hoisted) - len(shown)
    return Table(
        "hoisted",
        "Closed-over arrays that JAX made arguments of",
        (
            Column("bytes", Unit.BYTES),
            Column("array", text=Text.ARRAY),
            Column("name", text=Text.PATH),
            Column("parameter"),
            Column("line", text=Text.SOURCE),
        ),
        tuple(
            (
                Quantity("bytes", array.bytes, Unit.BYTES),
                f"{array.dtype}[{','.join(map(str, array.dimensions))}]",
                ", ".join(array.names) or "-",
                ", ".join(map(str, array.parameters)),
                f"{array.file}:{array.line}" if array.file is not None else "-",
            )
            for array in shown
        ),
        f"and {left} more; --top 0 lists all" if left else "",
    )
