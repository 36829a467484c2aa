"""Each instruction of a trace held against the FLOPs of the ledger and the chip's roofline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hloscope.chips import Chip
from hloscope.errors import HloscopeError, Unavailable
from hloscope.ir import Module, read_proto
from hloscope.passes.execution import Execution
from hloscope.passes.flops.counts import HEADLINE
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.multiplicity import Times
from hloscope.passes.peaks import peak_of
from hloscope.passes.roofline import Roofline
from hloscope.passes.traced_chip import TracedChip, chip_of_device
from hloscope.passes.traced_executions import Runs, executions_of, runs_of
from hloscope.passes.traced_operation import PROFILED_AT, TracedOperation, TracedProgram
from hloscope.pipeline.findings import Basis
from hloscope.pipeline.session import AnalysisFailedError, Session
from hloscope.traces.kernel_instructions import Link
from hloscope.traces.kernel_names import category_of_name
from hloscope.traces.operations import OperationTally
from hloscope.traces.steps import StepSource
from hloscope.traces.summary import DeviceSummary, HostSummary, Trace

__all__ = ["TraceJoin", "join_trace"]

OpenSession = Callable[[Module, Chip], Session]
"""Gives a session over a module that is held against a chip."""


@dataclass(frozen=True)
class TraceJoin:
    """A trace held against its programs.

    Attributes:
        operations: Instructions, and what is known of none, those that took longest first.
        programs: Programs whose modules were at hand.
        chips: The chips of the devices, by how they are known.
        window: Length of the windows of the devices that ran such a program, added up, in
            picoseconds.
        time: Time of all kernels by themselves, in picoseconds.
        notes: What could not be held against anything, and why.
    """

    operations: tuple[TracedOperation, ...]
    programs: tuple[TracedProgram, ...]
    chips: tuple[TracedChip, ...]
    window: int
    time: int
    notes: tuple[str, ...] = ()

    def time_of(self, chosen: Callable[[TracedOperation], bool]) -> int:
        """Time of some of the operations."""
        return sum(each.time for each in self.operations if chosen(each))

    @property
    def joined(self) -> int:
        """Time of kernels whose instruction is known and at hand."""
        return self.time_of(lambda each: each.instruction is not None)

    @property
    def unheld(self) -> int:
        """Time of kernels that may multiply and of whose program nothing is at hand."""
        return self.time_of(
            lambda each: (
                each.instruction is None
                and each.profiler_flops is None
                and not all(category_of_name(label).is_copy for label in each.labels)
            )
        )

    @property
    def counted(self) -> int:
        """The part of it whose FLOPs are known, be they none."""
        return self.time_of(
            lambda each: (
                each.instruction is not None and (each.row is None or each.row.flops is not None)
            )
        )


def join_trace(trace: Trace, open_session: OpenSession, chip: Chip | None = None) -> TraceJoin:
    """Hold each instruction of a trace against the ledger and the roofline.

    Args:
        trace: The run.
        open_session: Gives a session over a program's module.
        chip: The chip that ran it; as the recording says, where left out.
    """
    given = TracedChip(chip, "as given by --chip") if chip is not None else None
    groups: dict[tuple[object, str], list[_Ran]] = defaultdict(list)
    chips: dict[str, TracedChip] = {}
    window = 0
    for host in trace.hosts:
        for device in host.devices:
            found = given or chip_of_device(device)
            rows: dict[int, list[OperationTally]] = defaultdict(list)
            for row in device.operations.rows:
                rows[row.program].append(row)
            if rows:
                chips.setdefault(found.chip.name, found)
            if any(p in host.programs or _is_profiled(mine) for p, mine in rows.items()):
                window += device.windows.chosen.length
            for program, mine in rows.items():
                ran = _Ran(host, device, program, tuple(mine), found.chip)
                groups[ran.key].append(ran)
    joined = _Joining(open_session)
    for ran_by in groups.values():
        joined.add(ran_by)
    operations = sorted(joined.operations, key=lambda each: (-each.time, each.name))
    return TraceJoin(
        operations=tuple(operations),
        programs=tuple(joined.programs),
        chips=tuple(chips.values()),
        window=window,
        time=sum(each.time for each in operations),
        notes=tuple(joined.notes),
    )


@dataclass(frozen=True)
class _Ran:
    """One program on one device."""

    host: HostSummary
    device: DeviceSummary
    program: int
    rows: tuple[OperationTally, ...]
    chip: Chip

    @property
    def content(self) -> bytes | None:
        return self.host.programs.get(self.program)

    @property
    def key(self) -> tuple[object, str]:
        """Programs of equal bytes are one, on whichever host; of others the id and the name."""
        content = self.content
        module = next((row.module for row in self.rows if row.module), "")
        return (content if content is not None else (self.program, module)), self.chip.name


class _Joining:
    def __init__(self, open_session: OpenSession) -> None:
        self._open_session = open_session
        self.operations: list[TracedOperation] = []
        self.programs: list[TracedProgram] = []
        self.notes: list[str] = []

    def add(self, ran_by: Sequence[_Ran]) -> None:
        held = self._held(ran_by[0])
        if held is None:
            mine = _merged(ran_by, None, [])
            self.operations += mine
            if any(_is_profiled(ran.rows) for ran in ran_by):
                self.programs.append(_profiled_program(ran_by, mine))
            return
        runs = [_runs(ran, held) for ran in ran_by]
        mine = _merged(ran_by, held, runs)
        self.operations += mine
        self.programs.append(_program(ran_by, held, runs, mine))

    def _held(self, ran: _Ran) -> _Held | None:
        content = ran.content
        if content is None:
            return None
        name = ran.rows[0].module
        try:
            module = read_proto(content)
            return _Held(module, self._open_session(module, ran.chip))
        except (HloscopeError, AnalysisFailedError, Unavailable) as error:
            what = error.message if isinstance(error, HloscopeError) else str(error)
            self.notes.append(f"{name or 'a program'} is held against nothing: {what}")
            return None


class _Held:
    """A program's module with what its analyses say, by instruction name."""

    def __init__(self, module: Module, session: Session) -> None:
        self.module = module
        roofline = session.get(Roofline)
        execution = session.get(Execution)
        self.chip = roofline.chip
        self.times = execution.times
        self.rows = {row.instruction.name: row for row in roofline.rows}
        self.instructions = module.by_name
        self.products: dict[str, list[FlopRow]] = defaultdict(list)
        for row in session.get(FlopLedger).rows:
            launch = execution.launch_of(row.instruction)
            if row.count.kind in HEADLINE and launch is not None:
                self.products[launch.name].append(row)

    def times_of(self, name: str) -> Times | None:
        instruction = self.instructions.get(name)
        return self.times.get(instruction.computation) if instruction is not None else None


def _runs(ran: _Ran, held: _Held) -> Runs:
    known = [(row, times) for row in ran.rows if (times := held.times_of(row.name)) is not None]
    steps = ran.device.steps
    annotated = steps.source is StepSource.ANNOTATED
    number = len(ran.device.windows.chosen.steps(steps)) if annotated else 0
    return runs_of(known, ran.device.operations.runs.get(ran.program), number)


def _merged(
    ran_by: Sequence[_Ran], held: _Held | None, runs: Sequence[Runs]
) -> list[TracedOperation]:
    """Each instruction over all devices."""
    found: dict[tuple[str, Link], list[tuple[OperationTally, Runs]]] = defaultdict(list)
    for place, ran in enumerate(ran_by):
        for row in ran.rows:
            if held is None:
                executions = Runs(row.executions, exact=False)
            else:
                executions = executions_of(row, held.times_of(row.name), runs[place])
            found[row.name, row.link].append((row, executions))
    operations = []
    for (name, link), rows in found.items():
        tallies = [tally for tally, _ in rows]
        is_known = held is not None and link in (Link.SAID, Link.BY_NAME)
        instruction = held.instructions.get(name) if held is not None and is_known else None
        operations.append(
            TracedOperation(
                module=tallies[0].module,
                name=name,
                link=link,
                chip=ran_by[0].chip,
                time=sum(tally.time for tally in tallies),
                elapsed=sum(tally.elapsed for tally in tallies),
                kernels=sum(tally.number for tally in tallies),
                labels=tuple({one.label: None for each in tallies for one in each.kernels}),
                executions=_sum([each for _, each in rows]),
                instruction=instruction,
                row=held.rows.get(name) if held is not None and instruction is not None else None,
                counts=tuple(row.count for row in held.products.get(name, ()))
                if held is not None and instruction is not None
                else (),
                profiler_flops=_total([tally.flops for tally in tallies]),
                profiler_bytes=_total([tally.moved_bytes for tally in tallies]),
            )
        )
    return operations


def _sum(runs: Iterable[Runs]) -> Runs:
    every = list(runs)
    return Runs(_total([each.number for each in every]), exact=all(each.exact for each in every))


def _total(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _is_profiled(rows: Sequence[OperationTally]) -> bool:
    """Whether the profiler counted FLOPs of them."""
    return any(row.flops for row in rows)


def _profiled_program(
    ran_by: Sequence[_Ran], operations: Sequence[TracedOperation]
) -> TracedProgram:
    """A program without a module, by what a TPU's profiler counted."""
    chip = ran_by[0].chip
    flops = sum(each.profiler_flops or 0 for each in operations)
    peak = chip.peaks.get(PROFILED_AT)
    uncounted, unrated = [], []
    if any(each.flop_rate is None and not each.is_control for each in operations):
        uncounted.append("operations of which the profiler knows no FLOPs")
    if peak is None:
        unrated.append(f"no peak of {chip.name} is known")
    recorded = [ran.device.operations.runs.get(ran.program) for ran in ran_by]
    return TracedProgram(
        name=operations[0].module,
        chip=chip,
        devices=_devices(ran_by),
        runs=Runs(_total(recorded), exact=True),
        flops=flops,
        peak_seconds=flops / peak if peak is not None else 0.0,
        recomputed_seconds=0.0,
        units={PROFILED_AT: flops / peak} if peak is not None else {},
        uncounted=tuple(uncounted),
        unrated=tuple(unrated),
        profiled=True,
    )


def _devices(ran_by: Sequence[_Ran]) -> int:
    return len({(each.host.host, each.device.name) for each in ran_by})


def _program(
    ran_by: Sequence[_Ran],
    held: _Held,
    runs: Sequence[Runs],
    operations: Sequence[TracedOperation],
) -> TracedProgram:
    """Its products in the windows: as often as their kernels ran, else as the program did."""
    whole = _sum(runs)
    ran: dict[str, Runs] = {}
    for each in operations:
        if each.instruction is not None and each.executions.number is not None:
            before = ran.get(each.name)
            ran[each.name] = each.executions if before is None else _sum([before, each.executions])
    flops = 0
    inferred = False
    at_peak = again = 0.0
    units: dict[str, float] = defaultdict(float)
    uncounted: dict[str, None] = {}
    unrated: dict[str, None] = {}
    for name, products in held.products.items():
        times = held.times_of(name)
        executions = ran.get(name)
        if executions is None and times is not None and times.exact is not None and whole.number:
            executions = Runs(whole.number * times.exact, exact=whole.exact)
        if executions is None or executions.number is None:
            if times is None or times.high != 0:
                uncounted["how often some products ran is not known"] = None
            continue
        inferred = inferred or not executions.exact
        for product in products:
            needed = product.count.without_masked_pairs()
            if needed.flops is None or needed.basis is Basis.BOUNDED:
                uncounted[needed.note or "the FLOPs of some products are not known"] = None
                continue
            flops += needed.flops * executions.number
            peak = peak_of(product.instruction, needed, held.chip)
            if peak is None:
                types = " and ".join(dict.fromkeys(needed.dtypes)) or "unknown types"
                unrated[f"no peak of {held.chip.name} is known for {types}"] = None
                continue
            seconds = needed.flops * executions.number / peak.rate
            at_peak += seconds
            units[peak.unit] += seconds
            if needed.flops:
                recomputed = replace(product, count=needed).recomputed_flops
                again += seconds * recomputed / needed.flops
    unknown = {note for row in held.rows.values() if row.flops is None for note in row.unknown}
    uncounted |= dict.fromkeys(sorted(unknown))
    return TracedProgram(
        name=held.module.name,
        chip=held.chip,
        devices=_devices(ran_by),
        runs=whole,
        flops=flops,
        peak_seconds=at_peak,
        recomputed_seconds=again,
        units=dict(units),
        uncounted=tuple(uncounted),
        unrated=tuple(unrated),
        inferred=inferred,
    )
