"""A trace's exchanges: what of them is exposed, and which device keeps the others waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from hloscope.answers.trace_cells import PS, device_name, seconds, share
from hloscope.passes.collectives import RING, CollectiveKind, wire_bytes
from hloscope.passes.traced_exchanges import traced_over
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit
from hloscope.pipeline.inputs import MeshAxes
from hloscope.traces.arrivals import Arrivals, DeviceArrivals, compare_hosts
from hloscope.traces.exposure import CollectiveTime
from hloscope.traces.summary import DeviceSummary, HostSummary, Trace

__all__ = ["exchange_tables"]

_PARTIAL = "lower bound: devices of other hosts may come later"
_OWN_HOST = "among the devices of its own host"
_DURATIONS = "who comes last is done soonest; runs in their order"
_OUTSTANDING = 0.5  # of the time that all wait, from which one device is named
_OF_TWO = 0.75
_WORTH_A_WORD = 0.002  # of the windows, below which devices come together

_Cells = tuple[str | Quantity, ...]


def exchange_tables(trace: Trace, top: int, mesh: MeshAxes | None = None) -> tuple[Table, ...]:
    """Exchanges by kind and axis and one by one, and who waits for whom.

    Args:
        trace: The run.
        top: Rows of a list at most; 0 for all.
        mesh: The mesh of the program, where it is known.

    Returns:
        No table of what the run has none of: exchanges, or several devices.
    """
    tables = []
    rows = [row for device in trace.devices for row in device.parts.collectives]
    if rows:
        tables += [_totals(trace, rows, mesh), _list(rows, top, mesh)]
    if len([device for device in trace.devices if not device.part]) > 1:
        tables.append(_devices(trace))
    between = compare_hosts({host.host: host.arrivals for host in trace.hosts})
    if between is not None:
        tables.append(_hosts(between))
    return tuple(tables)


def _totals(trace: Trace, rows: Sequence[CollectiveTime], mesh: MeshAxes | None) -> Table:
    groups: dict[tuple[str, str], list[CollectiveTime]] = {}
    for row in rows:
        groups.setdefault((traced_over(row.key, mesh), str(row.key.category)), []).append(row)
    length = sum(device.parts.window.length for device in trace.devices)
    found = sorted(groups.items(), key=lambda item: -_exposed(item[1]))
    return Table(
        "exchanges",
        "Exchanges by mesh axis and kind, over all devices: exposed is what nothing hides",
        (
            Column("over"),
            Column("exchange"),
            Column("exposed", Unit.SECONDS),
            Column("hidden", Unit.SECONDS),
            Column("share", Unit.SHARE),
            Column("runs", Unit.COUNT),
            Column("sent", Unit.BYTES, spare=True),
        ),
        tuple(
            (
                *names,
                seconds("exposed", _exposed(group)),
                seconds("hidden", sum(row.hidden for row in group)),
                share("share", _exposed(group), length),
                Quantity("runs", sum(row.number for row in group)),
                _sent(group),
            )
            for names, group in found
        ),
        "share: exposed time of the windows. Exchanges that run side by side count each.",
    )


def _exposed(rows: Sequence[CollectiveTime]) -> int:
    return sum(row.exposed for row in rows)


def _sent(rows: Sequence[CollectiveTime]) -> Quantity:
    """Bytes that the devices send in the runs of the window."""
    each = [(row, _wire(row)) for row in rows]
    known = [wire * row.number for row, wire in each if wire is not None]
    if not known:
        return Quantity("sent", None, Unit.BYTES, Basis.UNKNOWN)
    if len(known) < len(each):
        text = "lower bound: some are unknown"
        return Quantity("sent", sum(known), Unit.BYTES, Basis.BOUNDED, text)
    return Quantity("sent", sum(known), Unit.BYTES, Basis.MODELLED, RING)


def _wire(row: CollectiveTime) -> int | None:
    written = row.key.written
    if written is None or written.payload is None:
        return None
    kind = CollectiveKind(written.opcode)
    if kind is CollectiveKind.PERMUTE:
        return wire_bytes(kind, written.payload, 2)
    if written.group_size is None or kind is CollectiveKind.RAGGED_ALL_TO_ALL:
        return None
    return wire_bytes(kind, written.payload, written.group_size)


def _list(rows: Sequence[CollectiveTime], top: int, mesh: MeshAxes | None) -> Table:
    groups: dict[tuple[str, str], list[CollectiveTime]] = {}
    for row in rows:
        groups.setdefault(row.key.name, []).append(row)
    found = sorted(groups.items(), key=lambda item: (-_exposed(item[1]), item[0]))
    shown = found[: top or None]
    rest = len(found) - len(shown)
    return Table(
        "exchanges by instruction",
        "Exchanges, over all devices",
        (
            Column("instruction", text=Text.NAME),
            Column("exchange", spare=True),
            Column("over"),
            Column("exposed", Unit.SECONDS),
            Column("hidden", Unit.SECONDS),
            Column("runs", Unit.COUNT),
            Column("line", text=Text.SOURCE, spare=True),
            Column("module", spare=True),
        ),
        tuple(
            (
                instruction,
                str(group[0].key.category),
                traced_over(group[0].key, mesh),
                seconds("exposed", _exposed(group)),
                seconds("hidden", sum(row.hidden for row in group)),
                Quantity("runs", sum(row.number for row in group)),
                _line(group),
                module or "-",
            )
            for (module, instruction), group in shown
        ),
        f"{rest:,} more; --top 0 lists all." if rest else "",
    )


def _line(rows: Sequence[CollectiveTime]) -> str:
    written = rows[0].key.written
    return written.source if written is not None and written.source else "-"


def _devices(trace: Trace) -> Table:
    devices = [device for device in trace.devices if not device.part]
    usual = median(device.parts.compute for device in devices)
    cells = []
    for host in trace.hosts:
        arrivals = host.arrivals.arrivals
        found = {row.name: row for row in arrivals.devices} if arrivals is not None else {}
        for device in host.devices:
            if not device.part:
                row = found.get(device.name)
                cells.append(
                    (
                        device_name(trace, device),
                        *_waits(row, partial=arrivals is not None and arrivals.partial),
                        seconds("compute", device.parts.compute),
                        share("to the usual", device.parts.compute - usual, usual),
                        _step(device),
                        Quantity("compared", row.compared if row is not None else 0),
                    )
                )
    return Table(
        "arrivals",
        f"Devices beside each other{_verdict(trace.hosts)}",
        (
            Column("device", text=Text.WORD),
            Column("caused", Unit.SECONDS),
            Column("waited", Unit.SECONDS),
            Column("last", Unit.SHARE),
            Column("compute", Unit.SECONDS),
            Column("to the usual", Unit.SHARE),
            Column("median step", Unit.SECONDS, spare=True),
            Column("compared", Unit.COUNT, spare=True),
        ),
        tuple(cells),
        " ".join(_notes(trace.hosts)),
    )


def _waits(row: DeviceArrivals | None, *, partial: bool) -> _Cells:
    if row is None or not row.compared:
        unknown = [Quantity(name, None, Unit.SECONDS, Basis.UNKNOWN) for name in _WAITS]
        return (*unknown, share("last", None, 1))
    if partial:
        caused = seconds("caused", row.caused, _OWN_HOST)
        waited = Quantity("waited", row.waited * PS, Unit.SECONDS, Basis.BOUNDED, _PARTIAL)
        return caused, waited, share("last", row.last, row.compared, _OWN_HOST)
    times = [seconds("caused", row.caused), seconds("waited", row.waited)]
    return (*times, share("last", row.last, row.compared))


_WAITS = ("caused", "waited")


def _step(device: DeviceSummary) -> Quantity:
    walls = [row.wall for row in device.windows.chosen.steps(device.steps)]
    return seconds("median step", median(walls) if walls else None)


def _verdict(hosts: Sequence[HostSummary]) -> str:
    """Which device the others wait for, if it is one."""
    compared = [host for host in hosts if host.arrivals.arrivals is not None]
    rows = [row for host in compared for row in _rows(host) if row.compared]
    total = sum(row.caused for row in rows)
    if not rows:
        return ""
    length = sum(device.parts.window.length for host in compared for device in host.devices)
    if total < _WORTH_A_WORD * length:
        return ": they come to exchanges together"
    names = [(host, row) for host in compared for row in _rows(host)]
    host, most = max(names, key=lambda each: each[1].caused)
    if most.caused < (_OF_TWO if len(rows) == 2 else _OUTSTANDING) * total:
        return ": no single one keeps the others waiting"
    name = f"{host.host} {most.name}" if len(hosts) > 1 else most.name
    return f": {name} keeps the others waiting"


def _rows(host: HostSummary) -> tuple[DeviceArrivals, ...]:
    return host.arrivals.arrivals.devices if host.arrivals.arrivals is not None else ()


def _notes(hosts: Sequence[HostSummary]) -> Iterator[str]:
    found = [host.arrivals.arrivals for host in hosts if host.arrivals.arrivals is not None]
    if any(row.compared for arrivals in found for row in arrivals.devices):
        yield (
            "caused: what all others waited for it in exchanges to which it came last. waited: "
            "from its own beginning to the last one's. last: share of the exchanges."
        )
        if len(hosts) > 1:
            yield "Of one host's devices: clocks of hosts are not synchronised."
    yield "to the usual: its compute against the median of all."
    if sum(arrivals.assumed for arrivals in found):
        yield (
            "Where the recording does not say which devices exchange, all of the host were "
            "taken for them, and none is done before the last began."
        )
    skipped: dict[str, int] = {}
    for arrivals in found:
        for reason, number in arrivals.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + number
    for reason, number in skipped.items():
        yield f"{number:,} exchanges not compared: {reason}."


def _hosts(arrivals: Arrivals) -> Table:
    skipped = sum(arrivals.skipped.values())
    return Table(
        "arrivals of hosts",
        "Hosts beside each other, by how long their exchanges take",
        (
            Column("host", text=Text.WORD),
            Column("caused", Unit.SECONDS),
            Column("waited", Unit.SECONDS),
            Column("last", Unit.SHARE),
            Column("compared", Unit.COUNT),
        ),
        tuple(
            (
                row.name,
                seconds("caused", row.caused, _DURATIONS),
                seconds("waited", row.waited, _DURATIONS),
                share("last", row.last, row.compared, _DURATIONS),
                Quantity("compared", row.compared),
            )
            for row in arrivals.devices
        ),
        "Estimated: clocks of hosts are not synchronised, but whoever comes last to an exchange "
        "is done soonest." + (f" {skipped:,} not as often on each host." if skipped else ""),
    )
