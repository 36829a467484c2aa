"""Bytes that every launched instruction reads and writes, by the memory they lie in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module, Shape
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.collectives import Collectives, gathered, is_started_by_fusion, only_waits
from hloscope.passes.execution import Execution
from hloscope.passes.flops.call_config import nested
from hloscope.passes.fusion_traffic import Needs, fusion_traffic, needs_inside, part_bytes
from hloscope.passes.memory_spaces import Space, has_on_chip_memory, space_of
from hloscope.passes.multiplicity import Times
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = ["Traffic", "TrafficRow", "count_traffic"]

_NOTHING: Mapping[Space, int] = {}


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """One launched instruction.

    Attributes:
        instruction: The instruction.
        read: Bytes that one run reads, by memory; empty where ``basis`` is unknown.
        written: Bytes that one run writes, by memory.
        times: Runs per execution of the program.
        basis: Exact by the rules of docs/roofline.md; modelled for a custom call.
        note: What a modelled number rests on, or why it is unknown.
    """

    instruction: Instruction
    read: Mapping[Space, int]
    written: Mapping[Space, int]
    times: Times
    basis: Basis = Basis.EXACT
    note: str = ""

    def moved(self, space: Space = Space.DEVICE) -> int | None:
        """Bytes read and written in a memory by one run; ``None`` where unknown."""
        if self.basis is Basis.UNKNOWN:
            return None
        return self.read.get(space, 0) + self.written.get(space, 0)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Memory traffic of a program.

    Attributes:
        rows: One for each launched instruction, callees' first.
    """

    rows: Sequence[TrafficRow]

    @property
    def by_instruction(self) -> Mapping[Instruction, TrafficRow]:
        """The rows by their instruction."""
        return {row.instruction: row for row in self.rows}

    def total(self, space: Space = Space.DEVICE) -> int:
        """Bytes of all that is known, each branch taken and each unknown loop run once."""
        return sum((row.moved(space) or 0) * row.times.nominal for row in self.rows)


@dataclass(slots=True)
class _Moves:
    """Reads and writes of one instruction as they are found."""

    on_chip: bool
    read: dict[Space, int] = field(default_factory=dict)
    written: dict[Space, int] = field(default_factory=dict)

    def reads(self, shape: Shape, size: int | None = None) -> None:
        _add(self.read, shape, size, self.on_chip)

    def writes(self, shape: Shape, size: int | None = None) -> None:
        _add(self.written, shape, size, self.on_chip)


def _add(sums: dict[Space, int], shape: Shape, size: int | None, on_chip: bool) -> None:
    for leaf in shape.leaves():
        if leaf.is_array:
            space = space_of(leaf, on_chip=on_chip)
            sums[space] = sums.get(space, 0) + (leaf.padded_bytes if size is None else size)


@analysis
def count_traffic(
    module: Module, graph: CallGraph, execution: Execution, collectives: Collectives
) -> Traffic:
    """Count by the rules of XLA's HloCostAnalysis; linear in the instructions.

    An instruction reads its operands and writes its result. A slice reads what
    it gives, an update writes what it replaces, a fusion what
    :func:`~hloscope.passes.fusion_traffic.fusion_traffic` says. Sizes include the
    tile padding of the layout, as the memory system moves it.
    """
    counter = _Counter(has_on_chip_memory(module), graph, execution, collectives)
    return Traffic([counter.row(instruction) for instruction in execution.launched()])


class _Counter:
    """One walk over the launched instructions."""

    def __init__(
        self, on_chip: bool, graph: CallGraph, execution: Execution, collectives: Collectives
    ) -> None:
        self.on_chip = on_chip
        self.graph = graph
        self.execution = execution
        self.collectives = collectives

    @cached_property
    def nested(self) -> Needs:
        """Computed when the first fusion asks, so that its errors belong to a fusion."""
        return needs_inside(self.graph, self.execution)

    def row(self, instruction: Instruction) -> TrafficRow:
        times = self.execution.times[instruction.computation]
        moves = _Moves(self.on_chip)
        basis, note = Basis.EXACT, ""
        try:
            if instruction.opcode == "custom-call":
                note = _custom_call(instruction, moves)
                basis = Basis.MODELLED if note else Basis.EXACT
            elif instruction.opcode == "fusion" and instruction.called:
                self.fusion(instruction, moves)
            else:
                _count(instruction, moves)
        except (Unavailable, IndexError, ValueError) as error:
            note = str(error) if isinstance(error, Unavailable) else "its operands do not fit it"
            return TrafficRow(instruction, _NOTHING, _NOTHING, times, Basis.UNKNOWN, note)
        return TrafficRow(instruction, moves.read, moves.written, times, basis, note)

    def fusion(self, fusion: Instruction, moves: _Moves) -> None:
        if only_waits(fusion):
            return
        if is_started_by_fusion(fusion):
            for collective in self.collectives.by_launch.get(fusion, ()):
                _read_all(collective.instruction.operands, moves)
                moves.writes(fusion.shape.elements[1], gathered(collective.instruction))
            return
        traffic = fusion_traffic(fusion, self.collectives.repeats, self.nested)
        operands = [leaf for operand in fusion.operands for leaf in operand.shape.leaves()]
        for (_, size), operand in zip(traffic.reads, operands, strict=True):
            moves.reads(operand, size)
        # A fusion's own shape says where its results lie; its body's may not.
        results = [leaf for leaf in fusion.shape.leaves() if leaf.is_array]
        for (_, size), result in zip(traffic.writes, results, strict=True):
            moves.writes(result, size)


def _count(instruction: Instruction, moves: _Moves) -> None:
    opcode, operands, shape = instruction.opcode, instruction.operands, instruction.shape
    if opcode in ("slice", "dynamic-slice", "gather"):
        moves.reads(operands[0].shape, shape.padded_bytes)
        _read_all(operands[1:], moves)
        moves.writes(shape)
    elif opcode == "dynamic-update-slice":
        _read_all(operands[1:], moves)
        moves.writes(shape, operands[1].shape.padded_bytes)
    elif opcode == "scatter":
        _scatter(instruction, moves)
    elif opcode.endswith("-start"):
        _read_all(operands, moves)
        moves.writes(_started(instruction))
    elif opcode in ("send", "outfeed"):
        _read_all(operands[:1], moves)
    elif opcode in ("recv", "infeed"):
        moves.writes(shape.elements[0] if shape.elements else shape)
    else:
        _read_all(operands, moves)
        moves.writes(shape)


def _read_all(operands: Iterable[Instruction], moves: _Moves) -> None:
    """Whole operands; one that is given twice need be read once only."""
    for operand in dict.fromkeys(operands):
        moves.reads(operand.shape)


def _scatter(scatter: Instruction, moves: _Moves) -> None:
    """Indices and updates are read, and of the target what they are combined with."""
    operands = scatter.operands
    targets = (len(operands) - 1) // 2
    _read_all(operands[targets:], moves)
    for target, update in zip(operands, operands[targets + 1 :], strict=False):
        size = part_bytes(target.shape, min(update.shape.num_elements, target.shape.num_elements))
        moves.reads(target.shape, size)
        moves.writes(target.shape, size)


def _started(start: Instruction) -> Shape:
    """What an asynchronous start writes, out of the tuple that it returns.

    A copy returns ``(destination, source, context)``; a gather and a permute
    ``(operands, results, ...)``; an all-reduce its results or, since 2024, both.
    """
    shape, members = start.shape, start.shape.elements
    if start.opcode == "copy-start":
        return members[0] if members else shape
    if start.opcode == "all-reduce-start" and not (members and members[0].is_tuple):
        return shape
    return members[1] if len(members) > 1 else shape


_MOVES_NOTHING = re.compile(
    r"Noop|AllocateBuffer|CreateBuffer|ConcatBitcast|AssumeGatherIndicesInBound|Sharding"
    r"|SPMD(FullToShard|ShardToFull)Shape|(LocalToGlobal|GlobalToLocal)Shape|InspectSharding"
    r"|xla\.sdy\..*|(AsyncCollective|PrepareAsyncCall)(Start|Done)|annotate_device_placement"
    r"|__xla_internal_call_marker_.*|Annotate.*Marker|PinToDevice(Sram)?"
)


def _custom_call(call: Instruction, moves: _Moves) -> str:
    """Gives the name of the model that the bytes rest on; empty where they are exact."""
    target = call.custom_call_target or ""
    if _MOVES_NOTHING.fullmatch(target):
        return ""
    estimate = nested(nested(call.backend_config, "custom_call_config"), "cost_estimate")
    recorded = str(estimate.get("bytes_accessed", ""))
    if recorded.isdecimal():
        moves.read[Space.DEVICE] = int(recorded)
        return "kernel author's estimate"
    _read_all(call.operands, moves)
    leaves = call.shape.leaves()
    if len(leaves) > 1 and leaves[-1].dtype in ("s8", "u8") and leaves[-1].rank == 1:
        leaves = leaves[:-1]  # the workspace
    for leaf in leaves:
        moves.writes(leaf)
    return "operands read once, results written once"
