"""What lives when: the bytes of every buffer over the schedule, and the peak.

A computation's own buffers are laid over its printed order, which in a
scheduled module is the order of execution. What it calls adds its own peak for
as long as the call lasts: of a conditional the largest branch, of a loop one
run of its body, since the next run finds the memory free again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from hloscope.errors import Unavailable
from hloscope.ir import Computation, Module, Shape
from hloscope.passes.buffers import Buffer, BufferTable, done_of, tabulate
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.passes.loop_holes import Hole, find_holes
from hloscope.passes.memory_spaces import Space, has_on_chip_memory
from hloscope.passes.paused_collection import paused_collection
from hloscope.passes.result_memory import FreeMemory, lend_holes, lend_memory, until_written
from hloscope.pipeline.analyses import analysis

__all__ = ["Frame", "LiveRanges", "Profile", "find_live_ranges", "first_position"]

_LAUNCHING = frozenset((CallKind.ONCE, CallKind.BODY, CallKind.CONDITION, CallKind.BRANCH))


@dataclass(frozen=True, slots=True)
class Profile:
    """The bytes of temporaries in one memory over one computation.

    Attributes:
        live: Bytes at each position of the schedule, callees' peaks included.
        peak: The most of them.
        at: The first position where that is.
    """

    live: Sequence[int]
    peak: int
    at: int


@dataclass(frozen=True, slots=True)
class Frame:
    """The memory of one run of one computation.

    Attributes:
        computation: Which.
        buffers: Those that it holds itself; what its caller holds is left out.
        profiles: Bytes of temporaries by the memory that they lie in.
        calls: Computations that run at a position, one after the other or one of
            them: the largest counts.
        beside: Computations that run beside this one, from their start to their end.
        holes: When memory that a temporary of a caller carries through this
            computation holds nothing; taken off the profiles.
        lent: Buffers that lie in the memory of a result until the result is
            written: they live, and take nothing of their own.
    """

    computation: Computation
    buffers: tuple[Buffer, ...]
    profiles: Mapping[Space, Profile]
    calls: Mapping[int, tuple[Frame, ...]]
    beside: tuple[tuple[int, int, Frame], ...] = ()
    holes: tuple[Hole, ...] = ()
    lent: tuple[Buffer, ...] = ()

    def peak(self, space: Space) -> int:
        """Bytes of temporaries at the peak."""
        profile = self.profiles.get(space)
        return profile.peak if profile is not None else 0

    def callee_at(self, position: int, space: Space) -> Frame | None:
        """What runs at a position and takes most."""
        running = [frame for frame in self.calls.get(position, ()) if frame.peak(space)]
        return max(running, key=lambda frame: frame.peak(space)) if running else None


@dataclass(frozen=True, slots=True)
class LiveRanges:
    """All buffers of a scheduled program, laid over its schedule.

    Attributes:
        entry: The entry's frame; parameters, results and constants are in none.
        frames: Every computation that runs, callees first, the entry last.
        table: Which buffer each array of the entry lies in.
        parameters: The arguments' buffers, which live throughout.
        outputs: Results that lie in no argument's buffer. They are allocated
            before the program starts and live throughout.
        constants: Of all computations; they live throughout.
        aliased_bytes: Bytes of results that lie in an argument's buffer.
    """

    entry: Frame
    frames: tuple[Frame, ...]
    table: BufferTable
    parameters: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    aliased_bytes: int

    def temporaries(self, space: Space = Space.DEVICE) -> int:
        """Bytes of temporaries at their peak."""
        return self.entry.peak(space)

    def alive(self, space: Space = Space.DEVICE, at: int | None = None) -> tuple[Buffer, ...]:
        """Temporaries that live at a position of the entry's schedule, callees' included.

        Args:
            space: Which memory.
            at: The position; by default that of the peak.
        """
        stack = list(self.stack(space, at))
        for frame, where in tuple(stack):
            for first, last, other in frame.beside:
                if first <= where <= last:
                    stack += _stack(other, space, None)
        empty = {
            id(hole.holder)
            for frame, where in stack
            for hole in frame.holes
            if hole.first <= where <= hole.last
        }
        return tuple(
            buffer
            for frame, where in stack
            for buffer in frame.buffers
            if buffer.space is space
            and first_position(buffer) <= where <= buffer.last
            and id(buffer) not in empty
        )

    def stack(
        self, space: Space = Space.DEVICE, at: int | None = None
    ) -> tuple[tuple[Frame, int], ...]:
        """Frames from the entry down, and the position that each has reached."""
        return tuple(_stack(self.entry, space, at))


def _stack(frame: Frame | None, space: Space, at: int | None) -> list[tuple[Frame, int]]:
    found: list[tuple[Frame, int]] = []
    while frame is not None:
        profile = frame.profiles.get(space)
        position = at if at is not None and not found else profile.at if profile else 0
        found.append((frame, position))
        frame = frame.callee_at(position, space)
    return found


@analysis
def find_live_ranges(module: Module, graph: CallGraph) -> LiveRanges:
    """Lay every buffer over the schedule; linear in the module.

    Raises:
        Unavailable: The module is not scheduled, so nothing says what lives when.
    """
    if not module.is_scheduled:
        raise Unavailable(
            "the module is not scheduled, so nothing says what lives when",
            hint="Take the module that XLA finished with: compiled.as_text(), or the dump's "
            "after_optimizations.",
        )
    with paused_collection():
        return _lay_out(module, graph)


def _lay_out(module: Module, graph: CallGraph) -> LiveRanges:
    on_chip = has_on_chip_memory(module)
    tables: dict[Computation, BufferTable] = {}
    for computation in graph.order:
        calls = [call for call in graph.callers.get(computation, ()) if _launches(call)]
        if not calls and computation is not module.entry:
            continue
        table = tables[computation] = tabulate(
            computation,
            on_chip=on_chip,
            done=tables,
            in_place_result=any(call.kind is CallKind.BODY for call in calls),
        )
        if any(call.caller.opcode.startswith("async-") for call in calls):
            for buffer in table.values[computation.root]:
                buffer.resolve().external = True  # its start holds it until the end
        if computation is module.entry:
            break
    else:
        raise Unavailable("the module has no entry")
    places, aliased = _join_results(module, table)
    outputs = _outputs(table)
    places += [until_written(output) for output in outputs]
    results = frozenset(map(id, outputs))
    _place_results_of_calls(tables, graph, results)
    lent = lend_memory(tables, graph, places, results)
    holes = find_holes(tables, graph, results | lent)
    lend_holes(tables, holes, results)
    in_temporaries: dict[Computation, tuple[Hole, ...]] = {}
    for hole in holes:
        if hole.holder is not None:
            in_temporaries[hole.body] = (*in_temporaries.get(hole.body, ()), hole)
    frames: dict[Computation, Frame] = {}
    for computation, table in tables.items():
        frames[computation] = _frame(
            table, graph, frames, results, in_temporaries.get(computation, ())
        )
    return LiveRanges(
        frames[module.entry],
        tuple(frames.values()),
        table,
        _parameters(table),
        outputs,
        tuple(
            buffer
            for each in tables.values()
            for buffer in each.distinct()
            if buffer.instruction.opcode == "constant"
        ),
        aliased,
    )


def _place_results_of_calls(
    tables: Mapping[Computation, BufferTable], graph: CallGraph, results: frozenset[int]
) -> None:
    """What a callee returns lies where its caller's result lies, callers first."""
    for computation in reversed(list(tables)):
        values = tables[computation].values
        for call in graph.calls[computation]:
            callee = tables.get(call.callee)
            if callee is None or call.caller.opcode not in ("call", "conditional"):
                continue
            inside = callee.values[callee.computation.root]
            for mine, theirs in zip(values.get(call.caller, ()), inside, strict=False):
                whole = mine.resolve()
                if whole.external or id(whole) in results:
                    theirs.resolve().external = True


def _launches(call: Call) -> bool:
    return call.kind in _LAUNCHING and call.caller.opcode != "fusion"


def _join_results(module: Module, table: BufferTable) -> tuple[list[FreeMemory], int]:
    """Make aliased results their parameter's memory.

    Returns:
        What is free of that memory between the argument and the result, and the
        bytes of the results.
    """
    results = dict(
        zip(_indices(module.entry.root.shape), table.values[module.entry.root], strict=False)
    )
    held = {
        (number, index): buffer
        for number, parameter in enumerate(module.entry.parameters)
        for index, buffer in zip(_indices(parameter.shape), table.values[parameter], strict=False)
    }
    total = 0
    places: list[FreeMemory] = []
    for alias in module.input_output_alias:
        result = results.get(alias.output_index)
        parameter = held.get((alias.parameter, alias.parameter_index))
        if result is None or parameter is None:
            continue
        total += parameter.size
        if result.resolve().instruction.opcode not in ("parameter", "constant"):
            places.append(until_written(result.resolve(), parameter))
            result.join(parameter)
    return places, total


def _indices(shape: Shape, index: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    if not shape.is_tuple:
        return [index]
    return [
        leaf for k, element in enumerate(shape.elements) for leaf in _indices(element, (*index, k))
    ]


def _parameters(table: BufferTable) -> tuple[Buffer, ...]:
    return tuple(b for p in table.computation.parameters for b in table.values[p])


def _outputs(table: BufferTable) -> tuple[Buffer, ...]:
    found = {}
    for buffer in table.values[table.computation.root]:
        whole = buffer.resolve()
        if not whole.external and whole.instruction.opcode != "constant":
            found[id(whole)] = whole
    return tuple(found.values())


def first_position(buffer: Buffer) -> int:
    """What a called computation returns is its own until it ends, then the caller's."""
    return buffer.first + (buffer.instruction.opcode in ("call", "conditional"))


def _frame(
    table: BufferTable,
    graph: CallGraph,
    frames: Mapping[Computation, Frame],
    elsewhere: frozenset[int],
    holes: tuple[Hole, ...],
) -> Frame:
    length = len(table.computation.instructions) + 2
    buffers = tuple(
        buffer
        for buffer in table.distinct()
        if not buffer.external
        and buffer.size
        and buffer.instruction.opcode != "constant"
        and id(buffer) not in elsewhere
    )
    steps: dict[Space, list[int]] = {}

    def add(space: Space, first: int, last: int, size: int) -> None:
        step = steps.get(space)
        if step is None:
            step = steps[space] = [0] * length
        step[first] += size
        step[last + 1] -= size

    for buffer in buffers:
        last = min(buffer.last, length - 2)
        add(buffer.space, min(first_position(buffer), last), last, buffer.size)
    for hole in holes:
        add(hole.new.space, hole.first, hole.last, -hole.new.size)
    calls, beside = _calls(table.computation, graph, frames)
    for space in Space:
        for position, running in calls.items():
            most = max(frame.peak(space) for frame in running)
            if most:
                add(space, position, position, most)
        for first, last, frame in beside:
            if frame.peak(space):
                add(space, first, last, frame.peak(space))
    profiles = {}
    for space, step in steps.items():
        live = list(accumulate(step))[: length - 1]
        peak = max(live)
        profiles[space] = Profile(live, peak, live.index(peak))
    lent = tuple(buffer for buffer in table.distinct() if buffer.lent and buffer.size)
    return Frame(table.computation, buffers, profiles, calls, beside, holes, lent)


def _calls(
    computation: Computation, graph: CallGraph, frames: Mapping[Computation, Frame]
) -> tuple[dict[int, tuple[Frame, ...]], tuple[tuple[int, int, Frame], ...]]:
    """Frames of what runs at each position, and of what runs beside from start to end."""
    found: dict[int, tuple[Frame, ...]] = {}
    beside = []
    ends = None
    for call in graph.calls[computation]:
        frame = frames.get(call.callee)
        if frame is None or not _launches(call) or not frame.profiles:
            continue
        position = call.caller.index
        if call.caller.opcode.startswith("async-"):
            ends = ends or done_of(computation)
            beside.append((position, max(position, ends(call.caller)), frame))
        else:
            found[position] = (*found.get(position, ()), frame)
    return found, tuple(beside)
