"""Reductions that add up many elements in a narrow floating-point type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.ir.dtypes import BITS, is_floating
from hloscope.passes.multiplicity import Multiplicity, Times
from hloscope.pipeline.analyses import analysis

__all__ = ["NarrowReduction", "NarrowReductions", "find_narrow_reductions"]


@dataclass(frozen=True, slots=True)
class NarrowReduction:
    """One reduction.

    Attributes:
        instruction: The ``reduce``.
        dtype: The type that it adds up in.
        terms: Elements that one result adds up.
        times: Runs per execution of the program.
    """

    instruction: Instruction
    dtype: str
    terms: int
    times: Times


@dataclass(frozen=True, slots=True)
class NarrowReductions:
    """Sums in at most sixteen bits, those with most terms first."""

    rows: Sequence[NarrowReduction]


@analysis
def find_narrow_reductions(times: Multiplicity) -> NarrowReductions:
    """Find sums kept in a type of at most sixteen bits.

    JAX adds float16 and bfloat16 up in float32 unless the program asks
    otherwise (``lax.reduce``, ``jnp.sum(dtype=...)``, gradients of broadcasts).
    """
    rows = []
    for computation, runs in times.items():
        for instruction in computation.instructions:
            if instruction.opcode != "reduce" or not instruction.shape.is_array:
                continue
            dtype = instruction.shape.dtype
            if not is_floating(dtype) or BITS[dtype] > 16:
                continue
            if not any(called.root.opcode == "add" for called in instruction.called):
                continue
            before = instruction.operands[0].shape.num_elements
            after = instruction.shape.num_elements
            terms = before // after if after else 0
            if terms > 1:
                rows.append(NarrowReduction(instruction, dtype, terms, runs))
    return NarrowReductions(sorted(rows, key=lambda row: -row.terms))
