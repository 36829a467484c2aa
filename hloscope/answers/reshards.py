"""The changes of sharding that nobody asked for, as ``hloscope collectives`` lists them."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope import units
from hloscope.ir.compiler_log import FullRematerialization
from hloscope.passes.collectives import RING, RING_LOOPS
from hloscope.passes.reshards import Reshard, Reshards
from hloscope.passes.scopes import collapse_scope
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit

__all__ = ["reshard_notes", "reshard_tables"]

_DEEPEST = 9
_COLUMNS = (
    Column("sent", Unit.BYTES),
    Column("runs", Unit.COUNT, spare=True),
    Column("exchange"),
    Column("over", spare=True),
    Column("at"),
    Column("on a device", spare=True),
    Column("how"),
    Column("leaf or scope", text=Text.PATH),
    Column("line", text=Text.SOURCE),
    Column("instruction", text=Text.NAME, spare=True),
)


def reshard_tables(reshards: Reshards, top: int) -> Iterator[Table]:
    """One table, where there is anything: most bytes first, warnings without an exchange last.

    Args:
        reshards: What was found.
        top: How many are listed at most; 0 for all.
    """
    order = sorted(
        reshards.rows,
        key=lambda row: (-(_sent(row).value or 0), row.exchange.collective.instruction.name),
    )
    cells = [_cells(row) for row in order] + [_warned(one) for one in reshards.warnings]
    if not cells:
        return
    shown = cells[:top] if top else cells
    note = ""
    if len(shown) < len(cells):
        rest = units.byte_size(int(sum(_sent(row).value or 0 for row in order[len(shown) :])))
        note = f"and {len(cells) - len(shown)} more, {rest}; --top 0 lists all"
    yield Table("reshards", "Reshards that nobody asked for", _COLUMNS, tuple(shown), note)


def reshard_notes(reshards: Reshards) -> Iterator[str]:
    """What about them is not known."""
    if reshards.rows and not reshards.constraints_known:
        yield (
            "reshards: without the module before optimization, which dumps do not have, sharding "
            "constraints are known by name only, and most leave none"
        )
    if not reshards.listened:
        yield "reshards: what XLA's partitioner warned of is not known"


def _cells(row: Reshard) -> tuple[str | Quantity, ...]:
    exchange = row.exchange
    collective, location = exchange.collective, exchange.named.location
    axes = exchange.axes
    size = collective.group_size
    how = "resharded"
    if row.whole:
        how = "whole: XLA warns" if row.warning is not None else "whole, then sliced"
    name = exchange.named.op_name
    return (
        _sent(row),
        Quantity("runs", collective.times.nominal),
        collective.kind.value,
        ", ".join(axes) if axes else "unknown" if size is None else f"{size} devices",
        row.primitive or "-",
        f"{row.before} to {row.after}",
        how,
        exchange.about or collapse_scope(name, _DEEPEST) or name or "-",
        str(location) if location is not None else "-",
        collective.instruction.name,
    )


def _warned(warning: FullRematerialization) -> tuple[str | Quantity, ...]:
    """A warning whose exchange is gone: XLA may have found a better way afterwards."""
    return (
        Quantity("sent", None, Unit.BYTES, Basis.UNKNOWN),
        Quantity("runs", None, Unit.COUNT, Basis.UNKNOWN),
        "unknown",
        "unknown",
        warning.op_name.rpartition("/")[2] or "-",
        f"{warning.shape or '?'} from {warning.source} to {warning.target}",
        "whole: XLA warns",
        collapse_scope(warning.op_name, _DEEPEST) or warning.op_name or "-",
        "-",
        warning.instruction,
    )


def _sent(row: Reshard) -> Quantity:
    collective = row.exchange.collective
    if collective.wire_bytes is None:
        return Quantity("sent", None, Unit.BYTES, Basis.UNKNOWN)
    model = RING if collective.times.exact is not None else RING_LOOPS
    value = collective.wire_bytes * collective.times.nominal
    return Quantity("sent", value, Unit.BYTES, Basis.MODELLED, model)
