"""The rows of a FLOP ledger as tables: one by one, and summed by scope, line, type and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hloscope.answers.flop_view import DEPTH, Grouping
from hloscope.passes.flops.ledger import FlopLedger, FlopRow, UnknownCalls
from hloscope.passes.flops.totals import NOTHING, FlopTotal
from hloscope.passes.multiplicity import Times
from hloscope.passes.scopes import collapse_scope
from hloscope.passes.traffic import TrafficRow
from hloscope.passes.work import WorkLedger, WorkRow
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit

__all__ = ["breakdown", "instructions", "launches", "unknown_calls"]

_FACTS = (
    *("instruction", "computation", "chain", "kind", "operation"),
    *("dtypes", "scope", "source", "note"),
)
_TITLES = {
    Grouping.SCOPE: "By scope",
    Grouping.OP: "By operation",
    Grouping.DTYPE: "By type: operands -> sums",
    Grouping.KIND: "By kind",
    Grouping.SOURCE: "By line of Python",
    Grouping.COMPUTATION: "By HLO computation",
}
_TEXTS = {
    Grouping.SCOPE: Text.PATH,
    Grouping.OP: Text.PATH,
    Grouping.SOURCE: Text.SOURCE,
    Grouping.COMPUTATION: Text.NAME,
}


@dataclass(slots=True)
class _Group:
    """Rows that stand in one group."""

    instructions: int = 0
    total: FlopTotal = NOTHING
    backward: int = 0

    def add(self, row: FlopRow) -> None:
        self.instructions += 1
        self.total += row.total
        if "transpose(" in row.instruction.op_name:
            self.backward += row.nominal


def breakdown(
    ledger: FlopLedger, by: Grouping, *, depth: int = DEPTH, top: int | None = None
) -> Table:
    """The ledger's products summed by one thing, the most costly group first.

    Args:
        ledger: The products.
        by: What to sum by.
        depth: Parts of the scope that are kept, for ``scope``.
        top: Groups to list; all where not given.
    """
    groups: dict[str, _Group] = {}
    name = _namer(by, depth)
    for row in ledger.rows:
        groups.setdefault(name(row), _Group()).add(row)
    ordered = sorted(groups.items(), key=lambda item: (-item[1].total.nominal, item[0]))
    rows = tuple(
        (
            group.total.quantity("FLOPs"),
            _share(group.total, ledger.total),
            _part(group.backward, group.total),
            Quantity("instructions", group.instructions),
            text,
        )
        for text, group in ordered[:top]
    )
    columns = (
        Column("FLOPs", Unit.FLOPS),
        Column("share", Unit.SHARE),
        Column("backward", Unit.SHARE),
        Column("instr.", Unit.COUNT),
        Column(by.value, text=_TEXTS.get(by, Text.PLAIN)),
    )
    return Table(
        f"by.{by.value}", _TITLES[by], columns, rows, _left_out(len(ordered), len(rows), "groups")
    )


def instructions(ledger: FlopLedger, top: int | None = None, *, wide: bool = False) -> Table:
    """The ledger's products one by one, the most costly first.

    Args:
        ledger: The products.
        top: How many; all where not given.
        wide: Whether each fact has a column of its own, or all stand in one
            text that wraps.
    """
    ordered = sorted(ledger.rows, key=lambda row: (-row.nominal, row.instruction.name))
    shown = ordered[:top]
    head = (Column("FLOPs", Unit.FLOPS), Column("share", Unit.SHARE), Column("runs", Unit.COUNT))
    if wide:
        columns = (
            *head,
            Column("FLOPs of one", Unit.FLOPS),
            *(Column(title) for title in _FACTS),
        )
    else:
        columns = (*head, Column("dtype"), Column("instruction"))
    rows = tuple((*_numbers(row, ledger), *(_wide(row) if wide else _narrow(row))) for row in shown)
    return Table(
        "instructions",
        "By instruction",
        columns,
        rows,
        _left_out(len(ordered), len(rows), "instructions"),
    )


def launches(work: WorkLedger) -> Table:
    """What each launch computes and moves, over all of its runs, the most costly first.

    Work that stands in no launch (a custom call's own computation) is the last row.
    """
    ordered = sorted(
        work.rows,
        key=lambda row: (-row.products.nominal, -row.elementwise.nominal, row.instruction.name),
    )
    rows = [_launch(row) for row in ordered]
    columns = (
        *(Column(title) for title in ("instruction", "computation", "chain")),
        Column("runs", Unit.COUNT),
        Column("products", Unit.FLOPS),
        Column("elementwise", Unit.FLOPS),
        Column("transcendentals", Unit.COUNT),
        Column("bytes read", Unit.BYTES),
        Column("bytes written", Unit.BYTES),
        *(Column(title) for title in ("dtypes", "sums", "scope", "source", "note")),
    )
    note = ""
    if work.elsewhere.nominal:
        note = f"{work.elsewhere.nominal} FLOPs stand in computations that no launch holds."
    return Table("launches", "By launch", columns, tuple(rows), note)


def _launch(row: WorkRow) -> tuple[Quantity | str, ...]:
    instruction, moves = row.instruction, row.traffic
    return (
        instruction.name,
        instruction.computation.name,
        row.chain,
        _runs(row.times),
        row.products.quantity("products"),
        row.elementwise.quantity("elementwise"),
        Quantity("transcendentals", row.transcendentals)
        if row.times.exact is not None
        else Quantity(
            "transcendentals", row.transcendentals, basis=Basis.BOUNDED, model=f"{row.times} times"
        ),
        _moved("bytes read", moves, sum(moves.read.values())),
        _moved("bytes written", moves, sum(moves.written.values())),
        " x ".join(row.dtypes),
        ", ".join(row.accumulation),
        instruction.op_name,
        str(instruction.location or ""),
        moves.note,
    )


def _moved(name: str, moves: TrafficRow, one: int) -> Quantity:
    """Bytes over all runs, in every memory."""
    if moves.basis is Basis.UNKNOWN:
        return Quantity(name, None, Unit.BYTES, Basis.UNKNOWN)
    if moves.times.exact is None:
        total = one * moves.times.nominal
        return Quantity(name, total, Unit.BYTES, Basis.BOUNDED, f"{moves.times} times")
    model = moves.note or None if moves.basis is Basis.MODELLED else None
    return Quantity(name, one * moves.times.exact, Unit.BYTES, moves.basis, model)


def unknown_calls(calls: Sequence[UnknownCalls]) -> Table:
    """Custom calls whose FLOPs are not known, by target."""
    rows = tuple(
        (
            group.target or "without a target",
            Quantity("calls", group.calls),
            f"{', '.join(group.operands)} -> {group.result}",
            group.reason,
        )
        for group in calls
    )
    return Table(
        "unknown",
        "Not counted",
        (Column("custom call"), Column("calls", Unit.COUNT), Column("first one"), Column("why")),
        rows,
        "Whatever these compute is missing from the numbers above.",
    )


def _numbers(row: FlopRow, ledger: FlopLedger) -> tuple[Quantity, Quantity, Quantity]:
    return row.total.quantity("FLOPs"), _share(row.total, ledger.total), _runs(row.times)


def _runs(times: Times) -> Quantity:
    if times.exact is not None:
        return Quantity("runs", times.exact)
    return Quantity("runs", times.nominal, basis=Basis.BOUNDED, model=f"{times} times")


def _narrow(row: FlopRow) -> tuple[str, str]:
    chain = f"{row.chain} -> " if row.chain else ""
    parts = [f"{chain}{row.instruction.name}", collapse_scope(row.instruction.op_name, 8)]
    if row.count.flops is None:
        parts.append(row.count.note)
    return _dtype(row), "; ".join(part for part in parts if part)


def _wide(row: FlopRow) -> tuple[Quantity | str, ...]:
    instruction, count = row.instruction, row.count
    model = count.model or None if count.basis in (Basis.MODELLED, Basis.BOUNDED) else None
    one = Quantity("FLOPs of one", count.flops, Unit.FLOPS, count.basis, model)
    return (
        one,
        instruction.name,
        instruction.computation.name,
        row.chain,
        count.kind.value,
        _operation(row),
        _dtype(row),
        instruction.op_name,
        _source(row),
        count.note,
    )


def _share(part: FlopTotal, whole: FlopTotal) -> Quantity:
    """The part of the whole, by what each is nominally."""
    if not whole.nominal or part.basis is Basis.UNKNOWN:
        return Quantity("share", None, Unit.SHARE, Basis.UNKNOWN)
    if whole.basis is Basis.EXACT or part.basis is not Basis.BOUNDED:
        return Quantity("share", part.nominal / whole.nominal, Unit.SHARE)
    value = part.nominal / whole.nominal
    return Quantity("share", value, Unit.SHARE, Basis.BOUNDED, "unknown loops run once")


def _part(flops: int, whole: FlopTotal) -> Quantity:
    if not whole.nominal:
        return Quantity("backward", None, Unit.SHARE, Basis.UNKNOWN)
    return Quantity("backward", flops / whole.nominal, Unit.SHARE)


def _left_out(all_: int, shown: int, what: str) -> str:
    return f"and {all_ - shown} more {what}; --top shows more, --json all" if all_ > shown else ""


def _namer(by: Grouping, depth: int) -> Callable[[FlopRow], str]:
    if by is Grouping.SCOPE:
        return lambda row: collapse_scope(row.instruction.op_name, depth) or "(no scope)"
    return _NAMERS[by]


def _operation(row: FlopRow) -> str:
    instruction = row.instruction
    target = instruction.custom_call_target
    return target or instruction.opcode.removesuffix("-start")


def _dtype(row: FlopRow) -> str:
    count = row.count
    operands = list(dict.fromkeys(count.dtypes))
    text = " x ".join(operands) or "unknown"
    return f"{text} -> {count.accumulation}" if count.accumulation else text


def _source(row: FlopRow) -> str:
    location = row.instruction.location
    return str(location) if location is not None else "(no source line)"


_NAMERS: Mapping[Grouping, Callable[[FlopRow], str]] = {
    Grouping.OP: _operation,
    Grouping.DTYPE: _dtype,
    Grouping.KIND: lambda row: row.count.kind.heading,
    Grouping.SOURCE: _source,
    Grouping.COMPUTATION: lambda row: row.instruction.computation.name,
}
