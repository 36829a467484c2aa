"""Which instructions the runtime launches one by one, and how often.

What stands in the body of a fusion, in a reducer or behind a custom call is
part of another instruction's work; everything else that the entry reaches is
launched by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction, Module
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.passes.multiplicity import NEVER, ONCE, Times, call_times
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.analyses import analysis

__all__ = ["CONTROL", "Execution", "find_execution"]

CONTROL = frozenset(
    """
    add-dependency after-all all-gather-done all-reduce-done async-done async-start async-update
    bitcast call collective-permute-done conditional constant copy-done domain get-tuple-element
    opt-barrier parameter partition-id recv-done replica-id send-done tuple while
    """.split()  # noqa: SIM905
)
"""Opcodes that launch nothing themselves: names, pointers, waits, and calls of the rest."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The computations whose instructions are launched one by one.

    Attributes:
        order: Those computations, callees before callers; the entry is last.
        times: Runs of each per execution of the program.
        calls: Calls among them, out of each.
        asynchronous: Those that only asynchronous starts reach: they run beside
            what stands between the start and its end.
        enclosing: For a fusion's computation, also a nested one's, the
            instruction that launches it.
    """

    order: Sequence[Computation]
    times: Mapping[Computation, Times]
    calls: Mapping[Computation, tuple[Call, ...]]
    asynchronous: frozenset[Computation]
    enclosing: Mapping[Computation, Instruction]

    def launched(self) -> Sequence[Instruction]:
        """Every instruction that is launched and does something, callees' first."""
        return [
            instruction
            for computation in self.order
            for instruction in computation.instructions
            if instruction.opcode not in CONTROL
        ]

    def launch_of(self, instruction: Instruction) -> Instruction | None:
        """The launch that an instruction is part of; ``None`` in a reducer and the like."""
        if instruction.computation in self.times:
            return instruction
        return self.enclosing.get(instruction.computation)

    def runs_beside(self, instruction: Instruction) -> bool:
        """Whether a launch leaves the device free to run what follows it."""
        if instruction.computation in self.asynchronous:
            return True
        opcode = instruction.opcode
        return opcode.endswith("-start") or opcode in ("send", "recv")


@analysis
def find_execution(module: Module, graph: CallGraph, trips: TripCounts) -> Execution:
    """Follow the calls that launch, from the entry down; linear in the calls."""
    times = {module.entry: ONCE}
    waited_for = {module.entry}
    enclosing: dict[Computation, Instruction] = {}
    calls: dict[Computation, tuple[Call, ...]] = {}
    for computation in reversed(graph.order):
        own = times.get(computation)
        launch = enclosing.get(computation)
        launching = []
        for call in graph.calls[computation]:
            if call.caller.opcode == "fusion":
                if own is not None or launch is not None:
                    enclosing.setdefault(call.callee, call.caller if launch is None else launch)
            elif own is not None and call.kind not in (CallKind.ELEMENT, CallKind.OPAQUE):
                launching.append(call)
                times[call.callee] = times.get(call.callee, NEVER) + own * call_times(call, trips)
                if computation in waited_for and not call.caller.opcode.startswith("async-"):
                    waited_for.add(call.callee)
        if own is not None:
            calls[computation] = tuple(launching)
    order = [computation for computation in graph.order if computation in times]
    beside = frozenset(computation for computation in order if computation not in waited_for)
    return Execution(order, times, calls, beside, enclosing)
