"""What a step sends between devices, along which axes, and what of it is exposed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloscope import units
from hloscope.answers.reshards import reshard_notes, reshard_tables
from hloscope.errors import Unavailable
from hloscope.ir.signature import InputLeaf
from hloscope.passes.collectives import RING, RING_LOOPS, SUMS
from hloscope.passes.exchanges import Exchange, Exchanges
from hloscope.passes.overlap import SCHEDULE, ExchangeTime, Overlap
from hloscope.passes.reshards import Reshards
from hloscope.passes.scopes import collapse_scope
from hloscope.pipeline.audit import AuditSubject, plural, trust_of
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.pytree_paths import keys_of
from hloscope.pipeline.session import Session

__all__ = ["SHOWN", "report_collectives"]

SHOWN = 20
"""Exchanges that are listed unless asked otherwise."""

_LINKS = "wire bytes over the chip's links"
_DEEPEST = 9


@dataclass(frozen=True, slots=True)
class _Row:
    """An exchange with its time, where a chip is known."""

    exchange: Exchange
    time: ExchangeTime | None

    @property
    def sent(self) -> Quantity:
        """Bytes that one device sends in one execution."""
        collective = self.exchange.collective
        if collective.wire_bytes is None:
            return Quantity("sent", None, Unit.BYTES, Basis.UNKNOWN)
        value = collective.wire_bytes * collective.times.nominal
        if collective.basis is Basis.BOUNDED:
            return Quantity("sent", value, Unit.BYTES, Basis.BOUNDED, collective.note)
        model = RING if collective.times.exact is not None else RING_LOOPS
        return Quantity("sent", value, Unit.BYTES, Basis.MODELLED, model)

    @property
    def over(self) -> str:
        """The mesh axes, or how many devices exchange with each other."""
        if self.exchange.axes:
            return ", ".join(self.exchange.axes)
        size = self.exchange.collective.group_size
        return "unknown" if size is None else f"{size} devices"

    @property
    def where(self) -> str:
        """The leaves that it is about, else its scope."""
        name = self.exchange.named.op_name
        scope = collapse_scope(name, _DEEPEST) or name
        about = _leaves(self.exchange.moved or self.exchange.updated)
        sources = _leaves(self.exchange.sources)
        return about or (sources if self._moves else scope) or scope or sources or "-"

    @property
    def _moves(self) -> bool:
        """Whether it sums nothing: what it sends is about a leaf still."""
        return self.exchange.collective.kind not in SUMS

    @property
    def relation(self) -> str:
        """What the exchange is to what ``where`` says."""
        exchange = self.exchange
        if exchange.moved:
            return "moves it"
        if exchange.updated:
            return "updates it"
        if exchange.sources and (self._moves or not exchange.named.op_name):
            return "computed from it"
        return "scope" if exchange.named.op_name else "-"


def _leaves(leaves: Sequence[InputLeaf]) -> str:
    """One leaf's path; of several the keys that they share and how many: ``state[20 leaves]``."""
    if len(leaves) < 2:
        return leaves[0].path if leaves else ""
    shared = []
    for keys in zip(*(keys_of(leaf.path) for leaf in leaves), strict=False):
        if len(set(keys)) > 1:
            break
        shared.append(keys[0])
    many = f"{len(leaves)} leaves"
    return f"{''.join(shared)}[{many}]" if shared else many


def report_collectives(session: Session, subject: AuditSubject, *, top: int = SHOWN) -> Report:
    """List what devices exchange: kind, mesh axes, bytes, time, and what is exposed.

    Args:
        session: Gives the exchanges; it was given the chip, if one is known.
        subject: Gives the report its head.
        top: How many exchanges are listed at most; 0 for all.
    """
    exchanges = session.get(Exchanges)
    try:
        overlap: Overlap | None = session.get(Overlap)
        no_times = ""
    except Unavailable as missing:
        overlap, no_times = None, missing.message
    times: Sequence[ExchangeTime | None] = (
        overlap.rows if overlap is not None else [None] * len(exchanges.rows)
    )
    rows = [
        _Row(exchange, time)
        for exchange, time in zip(exchanges.rows, times, strict=True)
        if exchange.collective.group_size != 1
    ]
    trust, missing_trust = trust_of(session)
    tables = [] if not rows else [_totals(rows), _parts(rows), _list(rows, top)]
    reshards = session.get(Reshards)
    tables += reshard_tables(reshards, top)
    return Report(
        command="collectives",
        subject=subject.name,
        header=subject.header(),
        tables=tuple(tables),
        trust=trust,
        summary=_summary(rows, overlap),
        notes=(
            *_notes(rows, overlap, no_times),
            *(reshard_notes(reshards) if rows else ()),
            *([missing_trust] if missing_trust else ()),
        ),
    )


def _summary(rows: Sequence[_Row], overlap: Overlap | None) -> str:
    if not rows:
        return "No device exchanges anything with another."
    runs = sum(row.exchange.collective.times.nominal for row in rows)
    text = f"{plural(len(rows), 'exchange')}, {units.count(runs)} runs a step"
    known = [row.sent.value for row in rows if row.sent.value is not None]
    text += f": each device sends {units.byte_size(int(sum(known)))}"
    lost = len(rows) - len(known)
    if lost:
        text += f" and an unknown amount in {lost} of them"
    if overlap is not None and any(row.seconds for row in overlap.rows):
        text += f", at least {units.seconds(overlap.link_seconds)} on the links"
        unknown = sum(1 for row in rows if row.time is not None and row.time.exposed is None)
        if unknown < len(rows):
            text += f"; {units.seconds(overlap.exposed_seconds)} exposed"
        if unknown:
            text += f"; of {unknown} it is not known whether they are exposed"
    return text + "."


def _sum(name: str, parts: Sequence[Quantity], unit: Unit) -> Quantity:
    """All of them; what is unknown makes the sum a lower bound."""
    known = [part for part in parts if part.value is not None]
    if not known and parts:
        return Quantity(name, None, unit, Basis.UNKNOWN)
    total = sum(part.value or 0 for part in known)
    if len(known) < len(parts):
        return Quantity(name, total, unit, Basis.BOUNDED, "lower bound: some are unknown")
    # A sum is known no better than the least of its parts.
    bounded = [part for part in known if part.basis is Basis.BOUNDED]
    loops = [part for part in known if part.model == RING_LOOPS]
    first = next(iter((*bounded, *loops, *known)), Quantity(name, 0, unit))
    return Quantity(name, total, unit, first.basis, first.model)


def _on_links(row: _Row) -> Quantity:
    runs = row.exchange.collective.times.nominal
    seconds = row.time.seconds if row.time is not None else None
    if seconds is None:
        return Quantity("on the links", None, Unit.SECONDS, Basis.UNKNOWN)
    return Quantity("on the links", seconds * runs, Unit.SECONDS, Basis.MODELLED, _LINKS)


def _exposed(row: _Row) -> Quantity:
    runs = row.exchange.collective.times.nominal
    exposed = row.time.exposed if row.time is not None else None
    if exposed is None:
        return Quantity("exposed", None, Unit.SECONDS, Basis.UNKNOWN)
    return Quantity("exposed", exposed * runs, Unit.SECONDS, Basis.MODELLED, SCHEDULE)


def _with_times(rows: Sequence[_Row]) -> bool:
    return any(row.time is not None for row in rows)


def _grouped(
    rows: Sequence[_Row], heads: Sequence[str], keys: Sequence[tuple[str, ...]]
) -> tuple[tuple[Column, ...], tuple[tuple[str | Quantity, ...], ...]]:
    """Columns and rows of a table that sums the exchanges with one key each."""
    timed = _with_times(rows)
    columns = [*map(Column, heads), Column("exchanges", Unit.COUNT), Column("runs", Unit.COUNT)]
    columns.append(Column("sent", Unit.BYTES))
    if timed:
        columns += [Column("on links", Unit.SECONDS), Column("exposed", Unit.SECONDS)]
    groups: dict[tuple[str, ...], list[_Row]] = {}
    for key, row in zip(keys, rows, strict=True):
        groups.setdefault(key, []).append(row)
    made: list[tuple[str | Quantity, ...]] = []
    for key, members in groups.items():
        runs = sum(row.exchange.collective.times.nominal for row in members)
        cells: list[str | Quantity] = [
            *key,
            Quantity("exchanges", len(members)),
            Quantity("runs", runs),
            _sum("sent", [row.sent for row in members], Unit.BYTES),
        ]
        if timed:
            cells.append(_sum("on the links", [_on_links(row) for row in members], Unit.SECONDS))
            cells.append(_sum("exposed", [_exposed(row) for row in members], Unit.SECONDS))
        made.append(tuple(cells))
    sent = len(heads) + 2
    made.sort(key=lambda cells: -(_value(cells[sent])))
    return tuple(columns), tuple(made)


def _value(cell: str | Quantity) -> float:
    return float(cell.value or 0) if isinstance(cell, Quantity) else 0.0


def _totals(rows: Sequence[_Row]) -> Table:
    keys = [(row.over, row.exchange.collective.kind.value) for row in rows]
    columns, made = _grouped(rows, ("over", "exchange"), keys)
    return Table("totals", "By mesh axis and kind, of one device", columns, made)


def _parts(rows: Sequence[_Row]) -> Table:
    columns, made = _grouped(rows, ("part",), [(row.exchange.part.value,) for row in rows])
    return Table("parts", "By part of the step", columns, made)


def _list(rows: Sequence[_Row], top: int) -> Table:
    order = sorted(
        rows, key=lambda row: (-(row.sent.value or 0), row.exchange.collective.instruction.name)
    )
    shown = order[:top] if top else order
    timed = _with_times(rows)
    columns = [
        Column("sent", Unit.BYTES),
        Column("runs", Unit.COUNT, spare=True),
        Column("exchange"),
        Column("over", spare=True),
        Column("type", spare=True),
        Column("part"),
        *([Column("exposed", Unit.SECONDS)] if timed else []),
        Column("leaf or scope", text=Text.PATH),
        Column("relation", spare=True),
        Column("line", text=Text.SOURCE),
        Column("instruction", text=Text.NAME, spare=True),
    ]
    cells = []
    for row in shown:
        collective, location = row.exchange.collective, row.exchange.named.location
        cells.append(
            (
                row.sent,
                Quantity("runs", collective.times.nominal),
                collective.kind.value,
                row.over,
                ", ".join(row.exchange.dtypes),
                row.exchange.part.value,
                *([_exposed(row)] if timed else []),
                row.where,
                row.relation,
                str(location) if location is not None else "-",
                collective.instruction.name,
            )
        )
    left = order[len(shown) :]
    note = ""
    if left:
        rest = units.byte_size(int(sum(row.sent.value or 0 for row in left)))
        note = f"and {len(left)} more, {rest}; --top 0 lists all"
    return Table(
        "exchanges", "Exchanges, by what one device sends", tuple(columns), tuple(cells), note
    )


def _notes(rows: Sequence[_Row], overlap: Overlap | None, no_times: str) -> Iterator[str]:
    if rows and overlap is None:
        yield f"no times: {no_times}; --chip NAME holds a dump against a chip"
    if rows and overlap is not None:
        yield (
            "exposed is what no work scheduled between start and end can hide. Work takes its time "
            "on the roofline, which is a floor: a run hides more where its work is slower."
        )
    if any(row.exchange.axes is None for row in rows):
        yield "where no mesh axis is named, the module tells device numbers only"
    reasons = {row.time.note for row in rows if row.time is not None and row.time.exposed is None}
    for reason in sorted(reasons - {""}):
        yield f"exposed is unknown where {reason}"
    by_flow = sum(1 for row in rows if row.exchange.by_flow)
    if by_flow:
        yield (
            f"{plural(by_flow, 'exchange')} without a name: the part of the step is told by data "
            "flow; what the forward pass exchanges goes into every gradient, replays count as "
            "backward"
        )
