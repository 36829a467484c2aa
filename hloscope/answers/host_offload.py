"""What a step keeps in the host's memory for its backward pass, as rows and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope import units
from hloscope.chips import Chip, ChipKind
from hloscope.passes.host_offload import HostOffload, OffloadOutcome
from hloscope.passes.scopes import collapse_scope
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit

__all__ = ["COPIES", "offload_notes", "offload_rows", "offload_said", "offload_table"]

COPIES = "copies between device and host, loops multiplied"
"""How it is known what is offloaded."""

_SCOPE_DEPTH = 3


def offload_said(offload: HostOffload) -> str:
    """What became of the offloading that was asked for; empty where none was and none is."""
    if offload.outcome is OffloadOutcome.NONE:
        return ""
    if offload.outcome is OffloadOutcome.MISSING:
        return (
            f"What the policy should offload ({_asked(offload)}) does not leave the device: the "
            "optimized HLO copies nothing to the host and back."
        )
    return f"{units.byte_size(offload.bytes_out)} wait for the backward pass on the host."


def offload_notes(offload: HostOffload, chip: Chip | None) -> Iterator[str]:
    """Why nothing is offloaded, where that is known."""
    if offload.outcome is OffloadOutcome.MISSING and chip is not None and chip.kind is ChipKind.CPU:
        yield "a CPU's memory is the host's: XLA drops what asks for offloading there"


def offload_rows(offload: HostOffload) -> Iterator[tuple[str | Quantity, ...]]:
    """Rows of the table of the whole step."""
    if offload.outcome is OffloadOutcome.NONE:
        return
    how = {
        OffloadOutcome.CONFIRMED: f"as asked ({_asked(offload)})",
        OffloadOutcome.MISSING: f"asked for ({_asked(offload)}), and missing",
        OffloadOutcome.UNASKED: "no jaxpr tells what was asked for"
        if offload.asked is None
        else "no policy asks for it",
    }[offload.outcome]
    copies = [copy for copy in offload.copies if copy.to_host]
    yield (
        "offloaded",
        _bytes("offloaded", offload.bytes_out),
        f"to the host by {plural(len(copies), 'instruction')}, {how}",
    )
    if offload.bytes_out or offload.bytes_back:
        yield "brought back", _bytes("brought back", offload.bytes_back), "from the host"


def offload_table(offload: HostOffload) -> Table | None:
    """What is offloaded by scope; ``None`` where nothing is."""
    groups: dict[str, tuple[int, int]] = {}
    for copy in offload.copies:
        if copy.to_host:
            scope = collapse_scope(copy.named.op_name, _SCOPE_DEPTH) or "(no scope)"
            count, size = groups.get(scope, (0, 0))
            groups[scope] = count + copy.times.nominal, size + copy.total
    if not groups:
        return None
    return Table(
        "offload",
        "Offloaded to the host",
        (
            Column("scope", text=Text.PATH),
            Column("copies", Unit.COUNT),
            Column("bytes", Unit.BYTES),
        ),
        tuple(
            (scope, Quantity("copies", count), _bytes("bytes", size))
            for scope, (count, size) in sorted(groups.items(), key=lambda g: (-g[1][1], g[0]))
        ),
    )


def _asked(offload: HostOffload) -> str:
    names = [name for policy in offload.asked or () for name in policy.offloads]
    if any(policy.offloads_products for policy in offload.asked or ()):
        names.append("products")
    return ", ".join(dict.fromkeys(names))


def _bytes(name: str, value: int) -> Quantity:
    return Quantity(name, value, Unit.BYTES, Basis.MODELLED, COPIES)
