"""Where a program computes in float64 or in 64-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hloscope.ir import Instruction, Module, Shape
from hloscope.passes.multiplicity import Multiplicity
from hloscope.pipeline.analyses import analysis

__all__ = ["WideLine", "WideTypes", "find_wide_types"]

_INTEGERS = frozenset({"s64", "u64"})
_FLOATS = frozenset({"f64", "c128"})
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
        dtype: ``f64``, ``c128``, ``s64`` or ``u64``.
        instructions: The instructions, in the order of the module.
        bytes: Bytes of all their results per execution, each unknown loop run once.
        enters: Those that make the wide type from narrower ones or from nothing:
            conversions, constants, random bits.
        exact: Whether it is known how often each of them runs.
    """

    dtype: str
    instructions: list[Instruction] = field(default_factory=list)
    bytes: int = 0
    enters: list[Instruction] = field(default_factory=list)
    exact: bool = True

    @property
    def largest(self) -> Instruction:
        """The instruction with the largest result."""
        return max(self.instructions, key=lambda i: i.shape.bytes)


@dataclass(frozen=True, slots=True)
class WideTypes:
    """64-bit work by line.

    Attributes:
        float64: Lines that compute in float64 (or complex128), largest first.
        int64: Lines that compute in 64-bit integers, largest first.
        computed_bytes: Bytes of every computed array of the program, to compare with.
        float64_arguments: Bytes of entry parameters in float64.
        floating_arguments: Bytes of entry parameters in any floating-point type.
    """

    float64: Sequence[WideLine]
    int64: Sequence[WideLine]
    computed_bytes: int
    float64_arguments: int
    floating_arguments: int


@analysis
def find_wide_types(module: Module, times: Multiplicity) -> WideTypes:
    """Group instructions with 64-bit results by dtype and line; linear in the instructions."""
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
            line = lines.setdefault((_place(instruction), dtype), WideLine(dtype))
            line.instructions.append(instruction)
            line.bytes += size
            line.exact = line.exact and runs.exact is not None
            if not any(_holds(operand.shape, dtype) for operand in instruction.operands):
                line.enters.append(instruction)
    ranked = sorted(lines.values(), key=lambda line: -line.bytes)
    parameters = module.entry.parameters
    return WideTypes(
        [line for line in ranked if line.dtype in _FLOATS],
        [line for line in ranked if line.dtype in _INTEGERS],
        computed,
        _bytes_of(parameters, _FLOATS),
        _bytes_of(parameters, None),
    )


def _place(instruction: Instruction) -> object:
    location = instruction.location
    if location is not None:
        return location.file, location.line
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
