"""A program's exchanges as a trace of it recorded them, and the mesh axes of traced ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hloscope.ir import Module
from hloscope.passes.collectives import Collective
from hloscope.passes.exchanges import Exchanges
from hloscope.passes.mesh_axes import axes_of_groups, named_mesh
from hloscope.passes.overlap import Overlap
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import MeshAxes
from hloscope.traces.exchanging import Key
from hloscope.traces.exposure import CollectiveTime
from hloscope.traces.kernel_names import Category
from hloscope.traces.summary import DeviceSummary, Trace

__all__ = ["TracedExchange", "TracedExchanges", "find_traced_exchanges", "traced_over"]


@dataclass(frozen=True, slots=True)
class TracedExchange:
    """One exchange in the windows of all devices of a trace; times are in picoseconds.

    Attributes:
        runs: How often it ran, on all devices together.
        time: Time in which it ran or was in flight.
        exposed: The part of it in which nothing was computed.
        waited: Time that devices were there before the last of them, hidden or not, as far
            as they could be compared.
        straggler: The device that most of that was waited for, or empty.
        share: The part (0..1) of it that was.
    """

    runs: int
    time: int
    exposed: int
    waited: int = 0
    straggler: str = ""
    share: float = 0.0

    def exposed_each(self) -> float:
        """Exposed time of one run on one device."""
        return self.exposed / self.runs if self.runs else 0.0


@dataclass(frozen=True)
class TracedExchanges:
    """What a trace tells of a program's exchanges.

    Attributes:
        rows: One for each of :class:`Exchanges`, in that order; ``None`` for what the trace
            does not have. Of several exchanges in one launch the first has its time.
        length: Windows of all devices together, in picoseconds.
        note: Why the trace tells nothing of the program, or empty.
    """

    rows: tuple[TracedExchange | None, ...]
    length: int
    note: str = ""


@analysis
def find_traced_exchanges(
    module: Module, exchanges: Exchanges, overlap: Overlap | None, trace: Trace
) -> TracedExchanges:
    """Join exchanges with those of a trace, by the names of module and instruction.

    Names alone are no proof that the program that ran is this one: an exchange of another
    kind, or of other bytes, under the same name says that it is not.
    """
    devices = [device for device in trace.devices if _takes_part(device)]
    length = sum(device.parts.window.length for device in devices)
    by_name: dict[str, list[CollectiveTime]] = {}
    others: set[str] = set()
    for device in devices:
        for row in device.parts.collectives:
            if row.key.module in (module.name, ""):
                by_name.setdefault(row.key.instruction, []).append(row)
            else:
                others.add(row.key.module)
    nothing: tuple[None, ...] = (None,) * len(exchanges.rows)
    if not by_name:
        ran = f"of {', '.join(sorted(others))} instead" if others else "at all"
        return TracedExchanges(
            nothing, length, f"the trace has no exchange of {module.name}, {ran}"
        )
    arrivals = _arrivals(trace)
    ends = [row.end for row in overlap.rows] if overlap is not None else nothing
    found: list[TracedExchange | None] = []
    seen: set[str] = set()
    for exchange, end in zip(exchanges.rows, ends, strict=True):
        names = dict.fromkeys(_names(exchange.collective))
        mine = [row for name in names for row in by_name.get(name, ())]
        if any(_differs(exchange.collective, row.key) for row in mine):
            return TracedExchanges(
                nothing, length, f"another {module.name} ran than this one: exchanges differ"
            )
        waits = by_name.get(end.name, []) if end is not None and end.name not in names else []
        if not sum(row.number for row in mine):
            found.append(None)
            continue
        runs = sum(row.number for row in mine)
        if seen & set(names):
            found.append(TracedExchange(runs, 0, 0))
            continue
        seen.update(names)
        every = [*mine, *waits]
        late = arrivals.get(mine[0].key.name)
        found.append(
            TracedExchange(
                runs,
                sum(row.time for row in every),
                sum(row.exposed for row in every),
                *(late if late is not None else ()),
            )
        )
    if not any(found):
        return TracedExchanges(
            nothing, length, f"another {module.name} ran than this one: no exchange is in both"
        )
    return TracedExchanges(tuple(found), length)


def _arrivals(trace: Trace) -> Mapping[tuple[str, str], tuple[int, str, float]]:
    """By module and instruction, what all devices waited, and for which of them most."""
    found: dict[tuple[str, str], tuple[int, str, float]] = {}
    for host in trace.hosts:
        for row in host.arrivals.arrivals.exchanges if host.arrivals.arrivals else ():
            waited, straggler, share = found.get(row.key.name, (0, "", 0.0))
            name = f"{host.host} {row.straggler}" if len(trace.hosts) > 1 else row.straggler
            most = max((waited * share, straggler), (row.waited * row.share, name))
            total = waited + row.waited
            part = most[0] / total if total else 0.0
            found[row.key.name] = total, most[1] if total else "", part
    return found


def _takes_part(device: DeviceSummary) -> bool:
    return bool(device.parts.collectives) and not device.part


def _names(collective: Collective) -> Iterator[str]:
    """What a trace may call an exchange: what is launched, or what starts that."""
    yield collective.launch.name
    yield collective.instruction.name
    for caller in collective.launch.computation.callers:
        if caller.opcode == "async-start":
            yield caller.name


_KINDS: Mapping[str, Category] = {
    "all-reduce": Category.ALL_REDUCE,
    "all-gather": Category.ALL_GATHER,
    "reduce-scatter": Category.REDUCE_SCATTER,
    "all-to-all": Category.ALL_TO_ALL,
    "ragged-all-to-all": Category.ALL_TO_ALL,
    "collective-permute": Category.PERMUTE,
}
_LIKE = frozenset({Category.ALL_REDUCE, Category.REDUCE_SCATTER})


def _differs(collective: Collective, key: Key) -> bool:
    wanted = _KINDS.get(collective.kind.value, Category.COLLECTIVE)
    both = {wanted, key.category}
    # A fusion of an all-reduce and the slice that is kept is told as either; and a library
    # does some kinds by sending and receiving.
    if len(both) > 1 and not both <= _LIKE and Category.COLLECTIVE not in both:
        return key.written is not None
    payload = key.written.payload if key.written is not None else None
    alone = collective.launch is collective.instruction
    known = collective.payload_bytes
    return alone and payload is not None and known is not None and payload != known


def traced_over(key: Key, mesh: MeshAxes | None = None) -> str:
    """The mesh axes of a traced exchange, or how many devices exchange with each other.

    Args:
        key: The exchange.
        mesh: The mesh of the program, where it is known; else the one that the exchange's
            own groups are written over, if they are.
    """
    written = key.written
    if written is None:
        return "unknown"
    mesh = mesh or named_mesh(written.groups)
    groups = written.numbers()
    if mesh is not None and groups is not None:
        axes: Sequence[str] = axes_of_groups(groups, mesh) or ()
        if axes:
            return ", ".join(axes)
    if written.opcode == "collective-permute":
        return "2 devices"
    return "unknown" if written.group_size is None else f"{written.group_size} devices"
