"""What a step keeps for its backward pass, as tables: by layer, by scope, by named policy point."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope import units
from hloscope.answers.remat_names import array_text, fate_in_jaxpr
from hloscope.errors import Unavailable
from hloscope.passes.memory_spaces import Space
from hloscope.passes.named_residuals import BY_LINE, NamedResiduals, NamedValue
from hloscope.passes.residuals import Residual, Residuals
from hloscope.passes.scopes import collapse_scope
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit
from hloscope.pipeline.session import Session

__all__ = ["residual_notes", "residual_tables"]

_SHOWN_SCOPES = 12
_SHOWN_NAMES = 40
_SCOPE_DEPTH = 2
_ARGUMENTS = "(copies of arguments)"
_NO_SCOPE = "(no scope)"
_BYTES = (Column("arrays", Unit.COUNT), Column("bytes", Unit.BYTES))
_AT_PEAK = Column("at the peak", Unit.BYTES)


def residual_tables(session: Session) -> Iterator[Table]:
    """Give the tables that have rows; a program without a backward pass has none.

    Raises:
        Unavailable: The module is not scheduled.
    """
    residuals = session.get(Residuals)
    if residuals.residuals:
        yield _by_scope(residuals)
        yield _by_layer(residuals)
    named = session.find(NamedResiduals)
    if named is not None and named.values:
        yield _by_name(named)


def residual_notes(session: Session) -> Iterator[str]:
    """Say which policies the step names, and why names are not known where they are not."""
    residuals = session.get(Residuals)
    try:
        named = session.get(NamedResiduals)
    except Unavailable as missing:
        if residuals.residuals:
            yield f"which of the kept arrays have a name is not known: {missing}"
        return
    if named.policies:
        words = ", ".join(policy.words for policy in named.policies)
        yield f"policies of jax.checkpoint in the step: {words}"


class _Sum:
    """Arrays that stand in one row."""

    def __init__(self) -> None:
        self.count = self.size = self.at_peak = 0

    def add(self, residual: Residual) -> None:
        size = residual.buffer.size
        self.count += 1
        self.size += size
        if residual.at_peak and residual.buffer.space is Space.DEVICE:
            self.at_peak += size

    @classmethod
    def of(cls, residuals: tuple[Residual, ...]) -> _Sum:
        total = cls()
        for residual in residuals:
            total.add(residual)
        return total


def _bytes(name: str, value: int, *, matched: bool = False) -> Quantity:
    if matched:
        return Quantity(name, value, Unit.BYTES, Basis.MODELLED, BY_LINE)
    return Quantity(name, value, Unit.BYTES)


def _by_scope(residuals: Residuals) -> Table:
    groups: dict[str, _Sum] = {}
    for residual in residuals.residuals:
        scope = collapse_scope(residual.origin.op_name, _SCOPE_DEPTH) or _NO_SCOPE
        groups.setdefault(_ARGUMENTS if residual.is_argument else scope, _Sum()).add(residual)
    order = sorted(groups.items(), key=lambda item: (-item[1].size, item[0]))
    left = order[_SHOWN_SCOPES:]
    note = f"{plural(len(residuals.residuals), 'array')}, {units.byte_size(residuals.total)} in all"
    if left:
        rest = sum(group.size for _, group in left)
        note += f"; {plural(len(left), 'more scope')} with {units.byte_size(rest)}"
    return Table(
        "residuals",
        "Kept from the forward for the backward pass",
        (Column("scope", text=Text.PATH), *_BYTES, _AT_PEAK),
        tuple(
            (
                scope,
                Quantity("arrays", group.count),
                _bytes("bytes", group.size),
                _bytes("at the peak", group.at_peak),
            )
            for scope, group in order[:_SHOWN_SCOPES]
        ),
        note,
    )


def _by_layer(residuals: Residuals) -> Table:
    """Stacks that a loop over layers fills, apart from what lies outside of loops."""
    groups: dict[int | None, _Sum] = {}
    arguments = _Sum()
    for residual in residuals.residuals:
        if residual.is_argument:
            arguments.add(residual)
        else:
            groups.setdefault(residual.made.layers, _Sum()).add(residual)
    rows: list[tuple[str | Quantity, ...]] = []
    for layers, group in sorted(groups.items(), key=lambda item: -item[1].size):
        where = f"a loop of {plural(layers, 'iteration')}" if layers else "outside such loops"
        each: str | Quantity = "-"
        if layers:
            each = _bytes("each", group.size // layers)
        rows.append(_row(where, group, each))
    if arguments.count:
        rows.append(_row("copies, casts and parts of arguments", arguments, "-"))
    return Table(
        "residual layers",
        "Kept for the backward pass, by layer",
        (Column("written in"), *_BYTES, Column("each", Unit.BYTES), _AT_PEAK),
        tuple(rows),
    )


def _row(where: str, group: _Sum, each: str | Quantity) -> tuple[str | Quantity, ...]:
    return (
        where,
        Quantity("arrays", group.count),
        _bytes("bytes", group.size),
        each,
        _bytes("at the peak", group.at_peak),
    )


def _by_name(named: NamedResiduals) -> Table:
    order = sorted(named.values, key=lambda value: (-value.bytes, value.point.name))
    rows = [_name_row(value) for value in order[:_SHOWN_NAMES]]
    if named.ambiguous:
        group = _Sum.of(tuple(residual for residual, _ in named.ambiguous))
        names = sorted({name for _, several in named.ambiguous for name in several})
        rows.append(_other_row(f"(one of {', '.join(names)})", group))
    without = _Sum.of(tuple(residual for residual in named.unnamed if not residual.is_argument))
    if without.count:
        rows.append(_other_row("(no name)", without))
    left = order[_SHOWN_NAMES:]
    note = ""
    if left:
        rest = sum(value.bytes for value in left)
        note = f"{plural(len(left), 'more name')} with {units.byte_size(rest)}"
    return Table(
        "named residuals",
        "Kept by named policy point",
        (
            Column("name"),
            Column("values"),
            Column("JAX"),
            *_BYTES,
            Column("named at"),
        ),
        tuple(rows),
        note,
    )


def _name_row(value: NamedValue) -> tuple[str | Quantity, ...]:
    point, group = value.point, _Sum.of(value.residuals)
    return (
        point.name,
        f"{'?' if value.values is None else value.values} x {array_text(point)}",
        fate_in_jaxpr(value),
        Quantity("arrays", group.count, basis=Basis.MODELLED, model=BY_LINE),
        _bytes("bytes", group.size, matched=True),
        f"{point.file}:{point.line}" if point.file else "-",
    )


def _other_row(name: str, group: _Sum) -> tuple[str | Quantity, ...]:
    return (
        name,
        "-",
        "-",
        Quantity("arrays", group.count, basis=Basis.MODELLED, model=BY_LINE),
        _bytes("bytes", group.size, matched=True),
        "-",
    )
