"""The instruction behind a kernel: what its launch says, else what its name says.

A kernel that a CUDA graph runs often has no ``hlo_op``, or that of the graph's first
instruction, as all of the graph's kernels have. XLA names the kernels that it writes after
their instruction, ``loop_add_fusion_3`` after ``loop_add_fusion.3``, and lets instructions
of equal work share one, whose name stands in their metadata. So a name tells where one
instruction alone can have made it. Kernels of libraries are named by their authors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum

from hloscope.ir import Instruction
from hloscope.traces.categories import Programs

__all__ = ["Event", "Link", "link_all"]


class Link(Enum):
    """How the instruction of a kernel is known."""

    SAID = "said by the recording"
    BY_NAME = "by kernel name"
    GRAPH = "one CUDA graph: its kernels were not recorded"
    NONE = "not known"


Event = tuple[int, str, str, int]
"""Of alike events: their program, their instruction as said or nothing, label and graph."""

_NOT_LAUNCHED = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call"}
    | {"conditional", "after-all", "opt-barrier"}
)
_WHOLE_GRAPH = re.compile(r"CudaGraph(Exec|Launch)\b|hipGraphLaunch\b", re.IGNORECASE)
_NO_WORD = re.compile(r"[^A-Za-z0-9_]")
_ROCM = ".kd"  # what ROCm appends to a kernel's name


def link_all(events: Sequence[Event], programs: Programs) -> list[tuple[int, str, Link]]:
    """The program and the instruction of each kind of event, and how they are known.

    Args:
        events: Distinct ones of one device.
        programs: The embedded modules.
    """
    names = _Names({event[0] for event in events}, programs)
    led = _graphs_of_one_name(events, names)
    return [_link(event, names, led) for event in events]


def _link(event: Event, names: _Names, led: set[tuple[int, int]]) -> tuple[int, str, Link]:
    program, said, label, graph = event
    if _WHOLE_GRAPH.match(label):
        return program, label, Link.GRAPH
    doubtful = (program, graph) in led
    if said and not (doubtful and not names.is_kernel_of(program, said, label)):
        return program, said, Link.SAID
    found = names.only(program, label) if graph or not said else None
    if found is not None:
        return *found, Link.BY_NAME
    # What only the graph's first instruction is said of is no statement of this kernel.
    return program, "" if doubtful else said, Link.NONE


def _graphs_of_one_name(events: Sequence[Event], names: _Names) -> set[tuple[int, int]]:
    """Graphs all of whose kernels name one instruction, which they cannot all be of."""
    said: dict[tuple[int, int], set[str]] = defaultdict(set)
    others: set[tuple[int, int]] = set()
    for program, instruction, label, graph in events:
        if graph and instruction and not _WHOLE_GRAPH.match(label):
            said[program, graph].add(instruction)
            found = names.only(program, label)
            if found is not None and found[1] != instruction:
                others.add((program, graph))
    return {graph for graph, found in said.items() if len(found) == 1 and graph in others}


class _Names:
    """Kernels' names by program, and which instructions they can be of."""

    def __init__(self, used: set[int], programs: Programs) -> None:
        self._used = used
        self._programs = programs
        self._known: dict[int, Mapping[str, tuple[str, ...]]] = {}

    def is_kernel_of(self, program: int, instruction: str, label: str) -> bool:
        return instruction in self._of(program).get(_plain(label), ())

    def only(self, program: int, label: str) -> tuple[int, str] | None:
        """The one instruction that a kernel can be of; of any program where none is said."""
        name = _plain(label)
        among = (program,) if program else sorted(self._used)
        found = [(each, one) for each in among for one in self._of(each).get(name, ())]
        return found[0] if len(found) == 1 else None

    def _of(self, program: int) -> Mapping[str, tuple[str, ...]]:
        if program not in self._known:
            found: dict[str, list[str]] = defaultdict(list)
            for instruction in self._programs.instructions(program):
                if _is_launched(instruction):
                    found[_kernel_of(instruction)].append(instruction.name)
            self._known[program] = {name: tuple(every) for name, every in found.items()}
        return self._known[program]


def _is_launched(instruction: Instruction) -> bool:
    return instruction.opcode not in _NOT_LAUNCHED and not instruction.computation.is_fusion


def _kernel_of(instruction: Instruction) -> str:
    """The name of its kernel, should XLA write one: its own, or that of the one it shares."""
    shared = dict(instruction.metadata.other).get("deduplicated_name", "")
    return _NO_WORD.sub("_", shared.strip('"') or instruction.name)


def _plain(label: str) -> str:
    return _NO_WORD.sub("_", label.removesuffix(_ROCM))
