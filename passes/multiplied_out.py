"""Products that a backend wrote as a multiplication and a sum.

On GPUs small batched products come out so: no ``dot`` is left to count, and
their FLOPs are among the elementwise ones and the reductions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.multiplicity import Multiplicity
from hloscope.pipeline.analyses import analysis

__all__ = ["MultipliedOut", "find_multiplied_out"]

_PRODUCTS = frozenset(("dot_general", "conv_general_dilated", "ragged_dot_general"))
_MOVES = frozenset(("bitcast", "convert", "copy", "reshape", "transpose", "slice"))


@dataclass(frozen=True, slots=True)
class MultipliedOut:
    """Multiplications and sums that carry the name of a product.

    Attributes:
        flops: For each reduction (or each multiplication that nothing sums up,
            of a product over one element) the FLOPs of the product that it
            stands for, per execution of the program: two for each element that
            is multiplied.
    """

    flops: Mapping[Instruction, int]


@analysis
def find_multiplied_out(graph: CallGraph, times: Multiplicity) -> MultipliedOut:
    """Look for reductions of multiplications that JAX's name calls a product."""
    found: dict[Instruction, int] = {}
    alone: dict[Instruction, str] = {}
    summed: set[str] = set()
    for instruction in graph.instructions():
        if instruction.opcode not in ("reduce", "multiply"):
            continue
        scope = instruction.op_name.split(";")[0]
        if scope.rsplit("/", 1)[-1].split("[")[0] not in _PRODUCTS:
            continue
        runs = times[instruction.computation].nominal
        if instruction.opcode == "multiply":
            alone[instruction] = scope
            found[instruction] = 2 * instruction.shape.num_elements * runs
        elif _of_multiplication(instruction):
            summed.add(scope)
            found[instruction] = 2 * instruction.operands[0].shape.num_elements * runs
    for instruction, scope in alone.items():
        if scope in summed:
            del found[instruction]
    return MultipliedOut(found)


def _of_multiplication(reduction: Instruction) -> bool:
    value = reduction.operands[0]
    while value.opcode in _MOVES and value.operands:
        value = value.operands[0]
    return value.opcode == "multiply"
