"""Where a program computes in float64 or in 64-bit integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module, Shape
from hloscope.passes.call_graph import Call, call_graph
from hloscope.passes.memory_spaces import has_on_chip_memory
from hloscope.passes.multiplicity import Multiplicity, multiplicity
from hloscope.passes.origins import Origins, trace_origins
from hloscope.passes.trip_counts import trip_counts
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import LoweredModule

__all__ = ["WideLine", "WideTypes", "find_wide_types"]

_INTEGERS = frozenset({"s64", "u64"})
_FLOATS = frozenset({"f64", "c128"})
_MOST_LOOPS = 4  # one after or in another, between a value and what computes it
_MOST_CALLS = 8
# The bodies of calls are counted themselves.
_NO_WORK = frozenset(
    """
    bitcast call conditional constant fusion get-tuple-element parameter tuple while
    """.split()  # noqa: SIM905
)


@dataclass(slots=True)
class WideLine:
    """What one line of the program computes in a 64-bit type.

    Attributes:
        place: File and line, else the scope or the computation.
        dtype: ``f64``, ``c128``, ``s64`` or ``u64``.
        instructions: The instructions, in the order of the module.
        bytes: Bytes of all their results per execution, each unknown loop run once.
        enters: Those that make the wide type from narrower ones or from nothing:
            conversions, constants, random bits.
        exact: Whether it is known how often each of them runs.
        fed_by: Places of other lines whose arrays of that type it computes on.
    """

    place: object
    dtype: str
    instructions: list[Instruction] = field(default_factory=list)
    bytes: int = 0
    enters: list[Instruction] = field(default_factory=list)
    exact: bool = True
    fed_by: set[object] = field(default_factory=set)

    @property
    def largest(self) -> Instruction:
        """The instruction with the largest result."""
        return max(self.instructions, key=lambda i: i.shape.bytes)

    @property
    def location(self) -> tuple[str, int] | None:
        """File and line, where these are known."""
        match self.place:
            case (str(file), int(line)):
                return file, line
        return None


@dataclass(frozen=True, slots=True)
class WideTypes:
    """64-bit work by line.

    Attributes:
        float64: Lines that compute in float64 (or complex128), largest first.
        int64: Lines that compute in 64-bit integers, largest first.
        computed_bytes: Bytes of every computed array of the program, to compare with.
        float64_arguments: Bytes of entry parameters in float64.
        floating_arguments: Bytes of entry parameters in any floating-point type.
        before: Whether all this is read from the module before optimization,
            because the compiler made pairs of 32-bit numbers of 64-bit types.
        pairs: Whether it does so and that module is not known: then only what
            crosses the program's edges is seen.
    """

    float64: Sequence[WideLine]
    int64: Sequence[WideLine]
    computed_bytes: int
    float64_arguments: int
    floating_arguments: int
    before: bool = False
    pairs: bool = False

    def following(self, root: WideLine) -> Sequence[WideLine]:
        """Lines that compute on with what a line of float64 makes, directly or not."""
        fed: dict[object, list[WideLine]] = {}
        for line in self.float64:
            for place in line.fed_by:
                fed.setdefault(place, []).append(line)
        found: dict[object, WideLine] = {}
        pending = [root]
        while pending:
            for line in fed.get(pending.pop().place, ()):
                if line.place != root.place and line.place not in found:
                    found[line.place] = line
                    pending.append(line)
        return list(found.values())


@analysis
def find_wide_types(
    module: Module, times: Multiplicity, origins: Origins, lowered: LoweredModule | None = None
) -> WideTypes:
    """Group instructions with 64-bit results by dtype and line; linear in the instructions.

    TPU compilers make two 32-bit numbers of each 64-bit one, and no line is
    left that computes in the type. There the module before optimization is read.
    """
    # TPU modules are told by their tiled layouts.
    if not has_on_chip_memory(module):
        return _group(module, times, origins)
    try:
        before = lowered.module if lowered is not None else None
    except Unavailable:
        before = None
    if before is None:
        return _group(module, times, origins, pairs=True)
    graph = call_graph(before)
    runs = multiplicity(before, graph, trip_counts(graph))
    return _group(before, runs, trace_origins(graph), before=True)


def _group(
    module: Module,
    times: Multiplicity,
    origins: Origins,
    *,
    before: bool = False,
    pairs: bool = False,
) -> WideTypes:
    lines: dict[tuple[object, str], WideLine] = {}
    computed = 0
    for computation, runs in times.items():
        for instruction in computation.instructions:
            shape = instruction.shape
            if not shape.is_array:
                continue
            works = instruction.opcode not in _NO_WORK
            size = shape.bytes * runs.nominal if works else 0
            computed += size
            dtype = shape.dtype
            if dtype not in _INTEGERS and dtype not in _FLOATS:
                continue
            if not works and instruction.opcode != "constant":
                continue
            place = _place(instruction, origins)
            line = lines.setdefault((place, dtype), WideLine(place, dtype))
            line.instructions.append(instruction)
            line.bytes += size
            line.exact = line.exact and runs.exact is not None
            sources = [o for o in instruction.operands if _holds(o.shape, dtype)]
            line.fed_by |= _places(sources, origins) - {place}
            if not sources:
                line.enters.append(instruction)
    known = {place for place, _ in lines}
    for line in lines.values():
        line.fed_by &= known
    ranked = sorted(lines.values(), key=lambda line: -line.bytes)
    parameters = module.entry.parameters
    return WideTypes(
        [line for line in ranked if line.dtype in _FLOATS],
        [line for line in ranked if line.dtype in _INTEGERS],
        computed,
        _bytes_of(parameters, _FLOATS),
        _bytes_of(parameters, None),
        before,
        pairs,
    )


def _places(values: Sequence[Instruction], origins: Origins) -> set[object]:
    """Where arrays were computed; not those of arguments and constants, which are on no line."""
    return {
        _place(maker, origins)
        for value in values
        for maker in _makers(value, origins, _MOST_LOOPS)
        if maker.opcode not in ("constant", "parameter") and _holds_many(maker.shape)
    }


def _makers(value: Instruction, origins: Origins, loops: int) -> Iterator[Instruction]:
    """What computes a value, also ahead of the loop that carries it and inside one before it.

    Of a loop's tuple every element of the value's shape may be the one.
    """
    maker = origins.of(value)
    shape = value.shape
    tuples: list[Instruction] = []
    if maker.opcode in ("while", "conditional") and maker.called:
        tuples = [computation.root for computation in maker.called]
    elif maker.opcode == "parameter":
        tuples = [o for call in origins.callers.get(maker.computation, ()) for o in _given(call)]
    else:
        yield maker
        return
    for one in tuples if loops else ():
        given = one if one.opcode == "tuple" else origins.of(one)
        for element in given.operands if given.opcode == "tuple" else (given,):
            same = element.shape.is_array and shape.is_array
            if same and (element.shape.dtype, element.shape.dimensions) == (
                shape.dtype,
                shape.dimensions,
            ):
                yield from _makers(element, origins, loops - 1)


def _given(call: Call) -> Sequence[Instruction]:
    """What a loop or a branch is entered with."""
    return call.caller.operands


def _holds_many(shape: Shape) -> bool:
    return any(leaf.is_array and leaf.num_elements > 1 for leaf in shape.leaves())


def _place(instruction: Instruction, origins: Origins) -> object:
    """File and line of an instruction, or of the only call of its computation."""
    scope = instruction
    for _ in range(_MOST_CALLS):
        location = scope.location
        if location is not None:
            return location.file, location.line
        calls = origins.callers.get(scope.computation, ())
        if len(calls) != 1:
            break
        scope = calls[0].caller
    return instruction.op_name or instruction.computation.name


def _holds(shape: Shape, dtype: str) -> bool:
    return any(leaf.is_array and leaf.dtype == dtype for leaf in shape.leaves())


def _bytes_of(parameters: Sequence[Instruction], dtypes: frozenset[str] | None) -> int:
    leaves = [leaf for parameter in parameters for leaf in parameter.shape.leaves()]
    return sum(
        leaf.bytes
        for leaf in leaves
        if leaf.is_array
        and (leaf.dtype in dtypes if dtypes is not None else leaf.dtype[0] in "fbc")
    )
