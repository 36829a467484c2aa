"""Which part of every exchange the schedule hides behind other work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hloscope.ir import Computation, Instruction, Module
from hloscope.passes.collectives import Collective, Collectives, only_waits
from hloscope.passes.execution import Execution
from hloscope.passes.multiplicity import call_times
from hloscope.passes.roofline import Roofline
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.analyses import analysis

__all__ = ["SCHEDULE", "ExchangeTime", "Overlap", "find_overlap"]

SCHEDULE = "the schedule, work and links at the roofline"
"""How it is known what of an exchange is exposed."""

_MAX_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class ExchangeTime:
    """One exchange's time in one run, by the roofline of the exchange and of what runs beside it.

    Attributes:
        collective: The exchange.
        end: The instruction that waits for it; ``None`` where it is waited for
            at once.
        seconds: Seconds that its wire bytes take over the chip's links;
            ``None`` where either is unknown.
        beside: Seconds of the work that is scheduled between start and end.
        exposed: Seconds that nothing hides; ``None`` where that is unknown.
        launches: Number of launches scheduled between start and end.
        note: Why something is unknown.
    """

    collective: Collective
    end: Instruction | None
    seconds: float | None
    beside: float
    exposed: float | None
    launches: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The exchanges of a program against the work beside them.

    Attributes:
        rows: One for each exchange, in the order of :class:`Collectives`.
    """

    rows: tuple[ExchangeTime, ...]

    @property
    def link_seconds(self) -> float:
        """All exchanges over the links in one execution, those of unknown time left out."""
        return sum((row.seconds or 0.0) * row.collective.times.nominal for row in self.rows)

    @property
    def exposed_seconds(self) -> float:
        """What of them nothing hides."""
        return sum((row.exposed or 0.0) * row.collective.times.nominal for row in self.rows)

    @property
    def unknown(self) -> tuple[ExchangeTime, ...]:
        """Exchanges of which it is not known whether they are hidden."""
        return tuple(row for row in self.rows if row.exposed is None)


@dataclass(slots=True)
class _Open:
    """An exchange on its way."""

    collective: Collective
    seconds: float | None
    left: float
    beside: float = 0.0
    launches: int = 0


@analysis
def find_overlap(
    module: Module,
    execution: Execution,
    collectives: Collectives,
    roofline: Roofline,
    trips: TripCounts,
) -> Overlap:
    """Walk the schedule of every computation and let what runs beside an exchange hide it.

    Between the start and the end of an exchange the device does other work. The
    links carry one exchange after another, in the order in which they started:
    work hides the oldest first, and no more of all than it lasts. Whatever is
    left when the end is reached is exposed; an exchange that is waited for at
    once is exposed as a whole. Work takes its time on the roofline, which is a
    floor, so that what is hidden is a floor and what is exposed a ceiling.

    Raises:
        Unavailable: No chip is known to hold it against.
    """
    by_start = _by_start(collectives, execution)
    work = {
        row.instruction: row.seconds or 0.0
        for row in roofline.rows
        if not row.asynchronous and row.instruction not in by_start
    }
    work.update(_seconds_of_calls(roofline, execution, trips))
    found: dict[int, ExchangeTime] = {}
    for computation in execution.order:
        if computation not in execution.asynchronous:
            for time in _walk(computation, by_start, work, roofline):
                found[id(time.collective)] = time
    rows = [found.get(id(one)) or _unknown(one) for one in collectives.rows]
    if not module.is_scheduled:
        rows = [_unscheduled(row) for row in rows]
    return Overlap(tuple(rows))


def _by_start(
    collectives: Collectives, execution: Execution
) -> Mapping[Instruction, Sequence[Collective]]:
    """The exchanges by the instruction that starts them where the program waits.

    What an ``async-start`` calls is launched in a computation of its own.
    """
    starts: dict[Instruction, list[Collective]] = {}
    for one in collectives.rows:
        start = one.launch
        while start.computation in execution.asynchronous and start.computation.callers:
            start = start.computation.callers[0]
        starts.setdefault(start, []).append(one)
    return starts


def _walk(
    computation: Computation,
    by_start: Mapping[Instruction, Sequence[Collective]],
    work: Mapping[Instruction, float],
    roofline: Roofline,
) -> Iterator[ExchangeTime]:
    """Pass a computation's instructions in order, and tell of each exchange once it ends."""
    open_: dict[Instruction, list[_Open]] = {}
    ends: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        for exchange in open_.pop(ends.get(instruction, instruction), ()):
            yield _closed(exchange, instruction)
        mine = by_start.get(instruction, ())
        if mine:
            times = [_link_seconds(one, roofline) for one in mine]
            started = [_Open(one, time, time or 0.0) for one, time in zip(mine, times, strict=True)]
            if not any(one.asynchronous for one in mine):
                yield from (_closed(exchange, None) for exchange in started)
                continue
            open_[instruction] = started
            end = _end_of(instruction)
            if end is not None:
                ends[end] = instruction
        elif instruction in work:
            _pass_time(work[instruction], [one for group in open_.values() for one in group])
    yield from (_never_closed(exchange) for group in open_.values() for exchange in group)


def _pass_time(seconds: float, exchanges: Sequence[_Open]) -> None:
    """A launch runs; the links meanwhile carry one exchange after another."""
    room = seconds
    for exchange in exchanges:
        exchange.beside += seconds
        exchange.launches += 1
        hidden = min(exchange.left, room)
        exchange.left -= hidden
        room -= hidden


def _end_of(start: Instruction) -> Instruction | None:
    """The ``-done``, or the fusion that waits, which a start reaches through its users."""
    seen = {start}
    pending = [start]
    while pending and len(seen) < _MAX_STEPS:
        value = pending.pop()
        for user in value.users:
            if user in seen:
                continue
            seen.add(user)
            if user.opcode.endswith("-done") or only_waits(user):
                return user
            # A fusion in between carries the exchange on beside its own work.
            if user.opcode in _CARRIES:
                pending.append(user)
    return None


_CARRIES = frozenset(
    ("async-update", "bitcast", "fusion", "get-tuple-element", "opt-barrier", "tuple")
)


def _closed(exchange: _Open, end: Instruction | None) -> ExchangeTime:
    known = exchange.seconds is not None
    return ExchangeTime(
        exchange.collective,
        end,
        exchange.seconds,
        exchange.beside,
        exchange.left if known else None,
        exchange.launches,
        "" if known else exchange.collective.note or "its time on the links is not known",
    )


def _never_closed(exchange: _Open) -> ExchangeTime:
    return ExchangeTime(
        exchange.collective,
        None,
        exchange.seconds,
        exchange.beside,
        None,
        exchange.launches,
        "it ends in another run of the loop than the one that starts it",
    )


def _unknown(collective: Collective) -> ExchangeTime:
    return ExchangeTime(collective, None, None, 0.0, None, 0, "nothing in the program starts it")


def _unscheduled(row: ExchangeTime) -> ExchangeTime:
    """Before a schedule nothing is known of what will run beside an exchange."""
    why = "the module is not scheduled"
    return replace(row, end=None, beside=0.0, exposed=None, launches=0, note=why)


def _link_seconds(collective: Collective, roofline: Roofline) -> float | None:
    rate = roofline.chip.link_bandwidth_one_way
    if collective.wire_bytes is None or (rate is None and collective.wire_bytes):
        return None
    return collective.wire_bytes / rate if rate else 0.0


def _seconds_of_calls(
    roofline: Roofline, execution: Execution, trips: TripCounts
) -> Mapping[Instruction, float]:
    """Seconds of what every loop, call and conditional launches, by its instruction.

    Of a conditional the dearest branch counts, and a loop of unknown length once.
    """
    own: dict[Computation, float] = dict.fromkeys(execution.order, 0.0)
    for row in roofline.rows:
        if not row.asynchronous and row.instruction.computation in own:
            own[row.instruction.computation] += row.seconds or 0.0
    calls: dict[Instruction, float] = {}
    whole: dict[Computation, float] = {}
    for computation in execution.order:
        total = own[computation]
        parts: dict[Instruction, list[float]] = {}
        for call in execution.calls[computation]:
            if call.callee not in execution.asynchronous:
                times = call_times(call, trips).nominal
                parts.setdefault(call.caller, []).append(whole[call.callee] * times)
        for caller, times_each in parts.items():
            dearest_only = caller.opcode == "conditional"
            calls[caller] = max(times_each) if dearest_only else sum(times_each)
            total += calls[caller]
        whole[computation] = total
    return calls
