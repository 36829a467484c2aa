"""Every conversion between element types, and the memory traffic that is its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hloscope.ir import Computation, Instruction, Module
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.execution import Execution
from hloscope.passes.memory_spaces import Space, has_on_chip_memory, space_of
from hloscope.passes.multiplicity import Multiplicity, Times
from hloscope.passes.origins import moves
from hloscope.pipeline.analyses import analysis

__all__ = ["Convert", "Converts", "find_converts", "is_asked_for", "is_pure"]

_MAX_STEPS = 100


@dataclass(frozen=True, slots=True)
class Convert:
    """One conversion.

    Attributes:
        instruction: The ``convert``.
        source: Element type that it reads.
        result: Element type that it makes.
        elements: How many it converts in one run.
        launch: What the runtime launches for it: itself, or the fusion around it.
        alone: Whether that launch does nothing but convert.
        read: Bytes that it reads from device memory in one run: zero where the
            value is computed in the same launch, lies on the chip, or is read by
            another conversion of the launch already.
        written: Bytes that it writes to device memory: zero where the result is
            used up in the same launch, or stays on the chip.
        times: Runs per execution of the program.
        asked_for: Whether the program wrote it, and not XLA.
    """

    instruction: Instruction
    source: str
    result: str
    elements: int
    launch: Instruction
    alone: bool
    read: int
    written: int
    times: Times
    asked_for: bool

    @property
    def nominal_bytes(self) -> int:
        """Bytes read and written per execution, each unknown loop run once."""
        return (self.read + self.written) * self.times.nominal


@dataclass(frozen=True)
class Converts:
    """The conversions of a program.

    Attributes:
        rows: Those that the entry reaches, outside of reducers and the like.
    """

    rows: Sequence[Convert]

    @cached_property
    def by_instruction(self) -> Mapping[Instruction, Convert]:
        """The rows by their instruction."""
        return {row.instruction: row for row in self.rows}


@analysis
def find_converts(
    module: Module, graph: CallGraph, execution: Execution, times: Multiplicity
) -> Converts:
    """Find the conversions; linear in the instructions."""
    edges = _Edges(graph, execution, on_chip=has_on_chip_memory(module))
    rows = []
    for computation in module.computations.values():
        if computation not in times:
            continue
        for instruction in computation.instructions:
            if instruction.opcode != "convert" or not instruction.operands:
                continue
            launch = execution.launch_of(instruction)
            if launch is None:
                continue
            rows.append(
                Convert(
                    instruction,
                    instruction.operands[0].shape.dtype,
                    instruction.shape.dtype,
                    instruction.shape.num_elements,
                    launch,
                    edges.alone(launch),
                    edges.read(instruction, launch),
                    edges.written(instruction),
                    times[computation],
                    is_asked_for(instruction),
                )
            )
    return Converts(rows)


def is_asked_for(convert: Instruction) -> bool:
    """Whether the program wrote this conversion: it carries the primitive's name.

    Before jaxlib 0.5 the name is followed by its parameters in brackets.
    """
    first = convert.op_name.split(";")[0]
    return first.rsplit("/", 1)[-1].split("[")[0] == "convert_element_type"


_FREE = frozenset(
    """
    bitcast constant convert get-tuple-element parameter reshape tuple
    """.split()  # noqa: SIM905
)


def is_pure(computation: Computation) -> bool:
    """Whether a fusion's computation does nothing but convert: it moves no element."""
    return all(
        instruction.opcode in _FREE
        or (instruction.opcode == "fusion" and all(is_pure(c) for c in instruction.called))
        for instruction in computation.instructions
    )


class _Edges:
    """Which ends of a conversion lie in memory."""

    def __init__(self, graph: CallGraph, execution: Execution, *, on_chip: bool) -> None:
        self.graph = graph
        self.execution = execution
        self.on_chip = on_chip
        self.pure: dict[Instruction, bool] = {}
        self.already_read: set[tuple[Instruction, Instruction]] = set()

    def alone(self, launch: Instruction) -> bool:
        """Whether a launch does nothing but convert."""
        if launch not in self.pure:
            self.pure[launch] = launch.opcode == "convert" or (
                launch.opcode == "fusion" and all(is_pure(c) for c in launch.called)
            )
        return self.pure[launch]

    def in_device_memory(self, value: Instruction) -> bool:
        leaves = [leaf for leaf in value.shape.leaves() if leaf.is_array]
        return any(space_of(leaf, on_chip=self.on_chip) is Space.DEVICE for leaf in leaves)

    def read(self, convert: Instruction, launch: Instruction) -> int:
        """Bytes of the operand, or of the smaller array that it is broadcast from."""
        value = convert.operands[0]
        size = value.shape.bytes
        for _ in range(_MAX_STEPS):
            if value.computation in self.execution.times:
                if (launch, value) in self.already_read or not self.in_device_memory(value):
                    return 0
                self.already_read.add((launch, value))
                return size
            size = min(size, value.shape.bytes) if value.shape.is_array else size
            if value.opcode == "parameter":
                calls = self.graph.callers.get(value.computation, ())
                number = value.parameter_number or 0
                if not calls or number >= len(calls[0].caller.operands):
                    return 0
                value = calls[0].caller.operands[number]
            elif value.operands and (moves(value) or value.opcode == "get-tuple-element"):
                value = value.operands[0]
            else:
                return 0
        return 0

    def written(self, convert: Instruction) -> int:
        """Bytes of the result, where it or a rearrangement of it leaves the launch."""
        if convert.computation in self.execution.times:
            return convert.shape.bytes if self.in_device_memory(convert) else 0
        pending, seen = [convert], {convert}
        for _ in range(_MAX_STEPS):
            if not pending:
                return 0
            value = pending.pop()
            if value.is_root:
                caller = self.caller_of(value.computation)
                if caller is None or caller.computation in self.execution.times:
                    kept = caller is not None and not self.in_device_memory(caller)
                    return 0 if kept else convert.shape.bytes
                onwards = [caller]
            else:
                onwards = [user for user in value.users if _hands_on(user, value)]
            pending += [user for user in onwards if user not in seen]
            seen.update(onwards)
        return 0

    def caller_of(self, computation: Computation) -> Instruction | None:
        calls = self.graph.callers.get(computation, ())
        return calls[0].caller if calls else None


def _hands_on(user: Instruction, value: Instruction) -> bool:
    if user.opcode in ("tuple", "get-tuple-element"):
        return True
    if user.opcode == "dynamic-update-slice":
        return len(user.operands) > 1 and user.operands[1] is value
    return moves(user) and user.operands[0] is value
