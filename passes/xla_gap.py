"""Why XLA's own cost analysis says something else than the count of the products.

XLA's rule is applied here to the same module, and then changed one thing at a
time into the rule of the ledger. What each change adds is that reason's part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import log2, prod

from hloscope.errors import Unavailable
from hloscope.ir import Computation, Instruction, Module
from hloscope.ir.attributes import parse_integers
from hloscope.ir.dtypes import is_complex
from hloscope.passes.call_graph import CallGraph, CallKind
from hloscope.passes.flop_gap import Gap, GapPart, Reason
from hloscope.passes.flops.convolution import count_convolution
from hloscope.passes.flops.counts import result_of, size_of
from hloscope.passes.flops.elementwise import ElementwiseLedger
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import XlaCost

__all__ = ["XlaGap", "find_xla_gap"]


@dataclass(frozen=True, slots=True)
class XlaGap:
    """XLA's own figure against the optimized HLO's products.

    Attributes:
        by_rule: What XLA's published rule gives for the module, applied by us.
        gap: From XLA's figure to the products', nominal as in
            :class:`hloscope.passes.flops.totals.FlopTotal`.
    """

    by_rule: int
    gap: Gap


@analysis
def find_xla_gap(
    module: Module,
    graph: CallGraph,
    ledger: FlopLedger,
    elementwise: ElementwiseLedger,
    cost: XlaCost,
) -> XlaGap:
    """Walk from XLA's figure to the ledger's, rule by rule.

    Raises:
        Unavailable: XLA gives no figure.
    """
    # XLA writes a negative number for a count that it does not know.
    if cost.flops is None or cost.flops < 0:
        raise Unavailable("XLA's cost analysis gives no number of FLOPs")
    calls = [i for i in graph.instructions() if _base(i) == "custom-call"]
    products = [row for row in ledger.rows if _base(row.instruction) != "custom-call"]
    library = [row for row in ledger.rows if _base(row.instruction) == "custom-call"]
    beside = [row for row in elementwise.rows if _base(row.instruction) != "custom-call"]

    charged = _added(calls, lambda _: -1)  # XLA's mark of a cost that it does not know
    as_xla = _added((row.instruction for row in products), _xla_flops)
    as_here = _flops_of(products)
    stages = [
        _once(graph, charged + as_xla + _flops_of(beside, _xla_beside)),
        _once(graph, charged + as_xla),
        _once(graph, charged + as_here),
        _once(graph, as_here + _flops_of(library)),
        ledger.total.nominal,
    ]
    targets = Counter(call.custom_call_target or "without a target" for call in calls)
    reasons = (
        (Reason.ELEMENTWISE, ""),
        (Reason.OTHER_RULE, ""),
        (Reason.CUSTOM_CALLS, _most_common(targets)),
        (Reason.LOOPS, ""),
    )
    figure = Fraction(cost.flops)
    rest = stages[0] - figure
    # XLA adds up in single precision, so that each addition may round.
    rounding = abs(rest) <= figure * module.num_instructions / 2**24
    parts = [GapPart(Reason.ROUNDING if rounding else Reason.NOT_BY_RULE, rest)]
    parts += [
        GapPart(reason, Fraction(after - before), evidence)
        for (reason, evidence), before, after in zip(reasons, stages, stages[1:], strict=False)
    ]
    gap = Gap(figure, Fraction(stages[-1]), tuple(part for part in parts if part.flops))
    return XlaGap(stages[0], gap)


class _Costs(dict[Computation, int]):
    """FLOPs by the computation that holds them; two of these add up."""

    def charge(self, computation: Computation, flops: int) -> None:
        """Add FLOPs of one instruction."""
        self[computation] = self.get(computation, 0) + flops

    def __add__(self, other: _Costs) -> _Costs:
        result = _Costs(self)
        for computation, flops in other.items():
            result.charge(computation, flops)
        return result


def _base(instruction: Instruction) -> str:
    return instruction.opcode.removesuffix("-start")


def _added(instructions: Iterable[Instruction], cost: Callable[[Instruction], int]) -> _Costs:
    costs = _Costs()
    for instruction in instructions:
        costs.charge(instruction.computation, cost(instruction))
    return costs


def _flops_of(rows: list[FlopRow], cost: Callable[[FlopRow], int] | None = None) -> _Costs:
    costs = _Costs()
    for row in rows:
        each = (row.count.flops or 0) if cost is None else cost(row)
        costs.charge(row.instruction.computation, each)
    return costs


def _once(graph: CallGraph, costs: Mapping[Computation, int]) -> int:
    """The program's cost with each loop's body and condition run once, as XLA has it.

    Of a conditional the dearest branch counts. What reducers do stands with
    their callers already.
    """
    done: dict[Computation, int] = {}
    for computation in graph.order:
        total = costs.get(computation, 0)
        branches: dict[Instruction, int] = {}
        for call in graph.calls[computation]:
            callee = done[call.callee]
            if call.kind is CallKind.BRANCH:
                branches[call.caller] = max(branches.get(call.caller, callee), callee)
            elif call.kind not in (CallKind.ELEMENT, CallKind.OPAQUE):
                total += callee
        done[computation] = total + sum(branches.values())
    return done[graph.order[-1]]


def _xla_flops(instruction: Instruction) -> int:
    """What ``HloCostAnalysis`` counts for one execution of a product."""
    rule = _XLA_RULES.get(_base(instruction))
    try:
        return 0 if rule is None else rule(instruction)
    except (IndexError, ValueError, Unavailable):
        return 0  # the ledger could not count it either, and says so


def _dot(instruction: Instruction) -> int:
    contracted = size_of(instruction.operands[0].shape, instruction.dot_dims.lhs_contracting)
    return 2 * result_of(instruction).num_elements * contracted


def _ragged_dot(instruction: Instruction) -> int:
    """As for a dot, but without the ragged dimension where that is not contracted."""
    dims = instruction.dot_dims
    flops = _dot(instruction)
    ragged = parse_integers(instruction.attributes.get("lhs_ragged_dims", ""))
    if any(dimension in dims.lhs_contracting for dimension in ragged):
        return flops
    return flops // max(size_of(instruction.operands[0].shape, tuple(ragged)), 1)


def _convolution(instruction: Instruction) -> int:
    flops = count_convolution(instruction).flops or 0
    return flops // 4 if is_complex(result_of(instruction).dtype) else flops


def _fft(instruction: Instruction) -> int:
    """The lengths' logarithms, rounded down and multiplied."""
    lengths = parse_integers(instruction.attributes.get("fft_length", ""))
    logs = prod(int(log2(length)) for length in lengths)
    return 8 * logs * instruction.operands[0].shape.num_elements


def _triangular_solve(instruction: Instruction) -> int:
    matrix, rhs = (operand.shape for operand in instruction.operands[:2])
    return 2 * rhs.num_elements * matrix.dimensions[-1]


def _cholesky(instruction: Instruction) -> int:
    matrix = instruction.operands[0].shape
    return matrix.num_elements * matrix.dimensions[-1] // 3


_XLA_RULES: Mapping[str, Callable[[Instruction], int]] = {
    "dot": _dot,
    "scaled-dot": _dot,
    "ragged-dot": _ragged_dot,
    "convolution": _convolution,
    "fft": _fft,
    "triangular-solve": _triangular_solve,
    "cholesky": _cholesky,
}


def _xla_beside(row: FlopRow) -> int:
    """What ``HloCostAnalysis`` counts for one execution of what is no product."""
    instruction = row.instruction
    if instruction.opcode == "topk":
        return 0
    if instruction.opcode == "sort":
        # All elements are taken for one row.
        elements = instruction.operands[0].shape.num_elements
        return elements * max(0, elements - 1).bit_length()
    return row.count.flops or 0


def _most_common(targets: Counter[str]) -> str:
    shown = [f"{target} x{number}" for target, number in targets.most_common(3)]
    more = len(targets) - len(shown)
    return ", ".join(shown) + (f" and {more} more targets" if more else "")
