"""How long each launched instruction takes at least on a chip, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from hloscope.chips import Chip
from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import CallKind
from hloscope.passes.collectives import Collective, Collectives
from hloscope.passes.compiler_estimate import estimated_cycles
from hloscope.passes.execution import Execution
from hloscope.passes.flops.counts import HEADLINE
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.memory_spaces import Space
from hloscope.passes.multiplicity import Times, call_times
from hloscope.passes.peaks import peak_of
from hloscope.passes.traffic import Traffic, TrafficRow
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = ["Bound", "Range", "Roofline", "RooflineRow", "StepTime", "hold_against_roofline"]


_MOST = 1 << 100  # no computer holds more; a text that says so was made up
_TOO_MUCH = "its sizes are larger than any computer holds"


class Bound(StrEnum):
    """What an instruction's time is bounded by."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LINK = "link"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RooflineRow:
    """One launched instruction held against the chip; figures are of one run.

    Attributes:
        instruction: The instruction.
        times: Runs per execution of the program.
        flops: FLOPs of the products in it, masked pairs of attention left out;
            ``None`` where something in it cannot be counted.
        units: The chip's peaks that they are held against, see :class:`Peak`.
        moved_bytes: Device memory read and written; ``None`` where unknown.
        wire_bytes: Bytes that it sends to other devices; ``None`` where unknown.
        compute: Seconds of the products at the chip's peak.
        memory: Seconds of the bytes at the chip's bandwidth.
        link: Seconds of the wire bytes over the chip's links, one way.
        asynchronous: Whether what follows can run meanwhile.
        cycles: The compiler's own estimate, where it left one.
        unknown: What of it has no figure, in words. Its time is then only known
            to be no less than the largest of the three that are known.
    """

    instruction: Instruction
    times: Times
    flops: int | None
    units: tuple[str, ...]
    moved_bytes: int | None
    wire_bytes: int | None
    compute: float | None
    memory: float | None
    link: float | None
    asynchronous: bool
    cycles: int | None
    unknown: tuple[str, ...] = ()

    @property
    def seconds(self) -> float | None:
        """At least so long; ``None`` where nothing of it is known."""
        known = [time for time in (self.compute, self.memory, self.link) if time is not None]
        longest = max(known, default=0.0)
        return longest if longest > 0 or not self.unknown else None

    @property
    def bound(self) -> Bound:
        """What takes longest; unknown as soon as a part of it is."""
        if self.unknown:
            return Bound.UNKNOWN
        parts = {Bound.COMPUTE: self.compute, Bound.MEMORY: self.memory, Bound.LINK: self.link}
        return max(parts, key=lambda bound: parts[bound] or 0.0)

    @property
    def intensity(self) -> float | None:
        """FLOPs a byte of device memory; ``None`` where either is unknown or nothing moves."""
        if self.flops is None or not self.moved_bytes:
            return None
        return self.flops / self.moved_bytes

    @property
    def nominal_seconds(self) -> float:
        """Floor of all its runs, each branch taken and each unknown loop run once."""
        return (self.seconds or 0.0) * self.times.nominal


@dataclass(frozen=True, slots=True)
class Range:
    """A sum over the program.

    Attributes:
        low: With the cheapest branches and loops of unknown length not run.
        nominal: With the dearest branches and such loops run once, which is
            what XLA's cost analysis assumes. Equal to ``low`` where all is known.
    """

    low: float
    nominal: float


@dataclass(frozen=True, slots=True)
class StepTime:
    """The program as a whole, in seconds.

    Attributes:
        floor: No execution is faster: what is waited for takes its floor one after
            another, asynchronous work is wholly hidden, and neither memory, nor
            links, nor units do more than they can.
        serial: The same when nothing is hidden: the sum of all rows.
        compute: All products at the chip's peak.
        memory: All traffic at the chip's bandwidth.
        link: All exchanges at the links' rate.
        cycles: The compiler's own estimate, summed over what carries one.
    """

    floor: Range
    serial: Range
    compute: Range
    memory: Range
    link: Range
    cycles: Range

    @property
    def utilisation(self) -> float | None:
        """The part of peak compute that is reached at the floor: no run reaches more."""
        return self.compute.nominal / self.floor.nominal if self.floor.nominal else None


@dataclass(frozen=True, slots=True)
class Roofline:
    """A program held against a chip.

    Attributes:
        chip: The chip.
        rows: One for each launched instruction that does something, callees' first.
        step: The whole.
        estimated: Rows that carry the compiler's own estimate.
        unplaced: Products that stand where nothing is launched (in a reducer); their
            FLOPs are in no row.
    """

    chip: Chip
    rows: Sequence[RooflineRow]
    step: StepTime
    estimated: int
    unplaced: int

    @property
    def unknown(self) -> Sequence[RooflineRow]:
        """Rows of which some part has no figure: the floor leaves that part out."""
        return [row for row in self.rows if row.unknown]


@analysis
def hold_against_roofline(
    chip: Chip,
    execution: Execution,
    trips: TripCounts,
    traffic: Traffic,
    collectives: Collectives,
    ledger: FlopLedger,
) -> Roofline:
    """Give each launched instruction its three times and sum them; linear.

    Products are those of the ledger's headline; elementwise work is held against
    memory only, as vendors publish no peak for it.
    """
    products, unplaced = _products(ledger, execution)
    uncounted = _uncounted(ledger, execution)
    rows = []
    for moved in traffic.rows:
        row = _row(
            moved,
            products.get(moved.instruction, ()),
            collectives.by_launch.get(moved.instruction, ()),
            uncounted.get(moved.instruction),
            chip,
            execution,
        )
        if row is not None:
            rows.append(row)
    return Roofline(
        chip,
        rows,
        _step(rows, execution, trips),
        sum(row.cycles is not None for row in rows),
        unplaced,
    )


def _products(
    ledger: FlopLedger, execution: Execution
) -> tuple[Mapping[Instruction, list[FlopRow]], int]:
    found: dict[Instruction, list[FlopRow]] = {}
    unplaced = 0
    for row in ledger.rows:
        if row.count.kind in HEADLINE:
            launch = execution.launch_of(row.instruction)
            if launch is None:
                unplaced += 1
            else:
                found.setdefault(launch, []).append(row)
    return found, unplaced


def _uncounted(ledger: FlopLedger, execution: Execution) -> Mapping[Instruction, str]:
    """Launches that hold a custom call of which the ledger knows nothing, and why."""
    reasons = {group.target: group.reason for group in ledger.unknown_calls}
    if not reasons:
        return {}
    counted = {row.instruction for row in ledger.rows}
    found: dict[Instruction, str] = {}
    for computation in (*execution.order, *execution.enclosing):
        for instruction in computation.instructions:
            if instruction.opcode != "custom-call" or instruction in counted:
                continue
            target = instruction.custom_call_target or ""
            launch = execution.launch_of(instruction)
            if target in reasons and launch is not None:
                what = f"custom call {target or 'without a target'}"
                found[launch] = f"{what}: {reasons[target]}"
    return found


def _row(
    moved: TrafficRow,
    products: Sequence[FlopRow],
    exchanges: Sequence[Collective],
    uncounted: str | None,
    chip: Chip,
    execution: Execution,
) -> RooflineRow | None:
    instruction = moved.instruction
    unknown: list[str] = [] if uncounted is None else [uncounted]
    flops, compute, units = _compute(products, chip, unknown)
    if uncounted is not None:
        flops = None
    wire, link = _link(exchanges, chip, unknown)
    memory = _memory(moved, chip, unknown, busy=bool(products or wire))
    cycles = estimated_cycles(instruction)
    if not (unknown or flops or wire or moved.moved() or cycles):
        return None
    # A start that XLA made synchronous leaves the device no other work.
    asynchronous = (
        any(exchange.asynchronous for exchange in exchanges)
        if exchanges
        else execution.runs_beside(instruction)
    )
    return RooflineRow(
        instruction,
        moved.times,
        flops,
        units,
        None if _TOO_MUCH in unknown else moved.moved(),
        wire,
        compute,
        memory,
        link,
        asynchronous,
        cycles,
        tuple(dict.fromkeys(unknown)),
    )


def _compute(
    products: Sequence[FlopRow], chip: Chip, unknown: list[str]
) -> tuple[int | None, float | None, tuple[str, ...]]:
    """FLOPs, their seconds, and the peaks that they are held against."""
    flops: int | None = 0
    seconds = 0.0
    units: dict[str, None] = {}
    for product in products:
        count = product.count
        if count.flops is None or count.basis is Basis.BOUNDED:
            unknown.append(count.note or "how many FLOPs its products take is not known")
            flops = None
            continue
        # What a mask hides need not be computed.
        needed = count.flops if count.masked_flops is None else count.masked_flops
        if needed > _MOST:
            unknown.append(_TOO_MUCH)
            flops = None
            continue
        if flops is not None:
            flops += needed
        peak = peak_of(product.instruction, count, chip)
        if peak is None:
            types = " and ".join(dict.fromkeys(count.dtypes)) or "unknown types"
            unknown.append(f"no peak of {chip.name} is known for {types}")
            continue
        seconds += needed / peak.rate
        units[peak.unit] = None
    return flops, seconds if units or not products else None, tuple(units)


def _memory(moved: TrafficRow, chip: Chip, unknown: list[str], *, busy: bool) -> float | None:
    """Seconds of the traffic; ``busy`` says that something else bounds the instruction."""
    size = moved.moved()
    if size is None or size > _MOST:
        unknown.append(moved.note if size is None else _TOO_MUCH)
        return None
    if moved.moved(Space.HOST):
        unknown.append("no rate to host memory is known")
    if size == 0:
        if moved.moved(Space.ON_CHIP) and not busy:
            unknown.append("no rate of on-chip memory is known")
        return 0.0
    if chip.memory_bandwidth is None:
        unknown.append(f"no memory bandwidth of {chip.name} is known")
        return None
    return size / chip.memory_bandwidth


def _link(
    exchanges: Sequence[Collective], chip: Chip, unknown: list[str]
) -> tuple[int | None, float | None]:
    total = 0
    for exchange in exchanges:
        if exchange.wire_bytes is None or exchange.basis is Basis.BOUNDED:
            unknown.append(exchange.note)
            return None, None
        total += exchange.wire_bytes
    if total > _MOST:
        unknown.append(_TOO_MUCH)
        return None, None
    if total == 0:
        return 0, 0.0
    rate = chip.link_bandwidth_one_way
    if rate is None:
        unknown.append(f"no link rate of {chip.name} is known")
        return total, None
    return total, total / rate


@dataclass(slots=True)
class _Sums:
    """Seconds (and cycles) of one run of a computation."""

    waited: float = 0.0
    serial: float = 0.0
    compute: float = 0.0
    memory: float = 0.0
    link: float = 0.0
    cycles: float = 0.0

    def add(self, other: _Sums, times: int = 1) -> None:
        self.waited += times * other.waited
        self.serial += times * other.serial
        self.compute += times * other.compute
        self.memory += times * other.memory
        self.link += times * other.link
        self.cycles += times * other.cycles

    def add_row(self, row: RooflineRow) -> None:
        seconds = row.seconds or 0.0
        if not row.asynchronous:
            self.waited += seconds
        self.serial += seconds
        self.compute += row.compute or 0.0
        self.memory += row.memory or 0.0
        self.link += row.link or 0.0
        self.cycles += row.cycles or 0

    def floor(self) -> float:
        return max(self.waited, self.compute, self.memory, self.link)


@dataclass(slots=True)
class _Both:
    """The two ends of a :class:`Range`, summed side by side."""

    low: _Sums
    nominal: _Sums


def _step(rows: Sequence[RooflineRow], execution: Execution, trips: TripCounts) -> StepTime:
    """Sum from the innermost computations outwards, so that branches stay apart."""
    own = {computation: _Sums() for computation in execution.order}
    for row in rows:
        own[row.instruction.computation].add_row(row)
    done: dict[Computation, _Both] = {}
    for computation in execution.order:
        both = done[computation] = _Both(replace(own[computation]), own[computation])
        branches: dict[Instruction, list[_Both]] = {}
        for call in execution.calls[computation]:
            callee = done[call.callee]
            if call.kind is CallKind.BRANCH:
                branches.setdefault(call.caller, []).append(callee)
            else:
                times = call_times(call, trips)
                both.low.add(callee.low, times.low)
                both.nominal.add(callee.nominal, times.nominal)
        for taken in branches.values():
            both.low.add(_cheapest([branch.low for branch in taken]))
            both.nominal.add(max((b.nominal for b in taken), key=lambda sums: sums.serial))
    whole = done[execution.order[-1]]

    def both_ends(name: str) -> Range:
        return Range(getattr(whole.low, name), getattr(whole.nominal, name))

    return StepTime(
        Range(whole.low.floor(), whole.nominal.floor()),
        *(both_ends(name) for name in ("serial", "compute", "memory", "link", "cycles")),
    )


def _cheapest(branches: Sequence[_Sums]) -> _Sums:
    """The least of each sum; no branch takes less of any."""
    return _Sums(*(min(getattr(b, each.name) for b in branches) for each in fields(_Sums)))
