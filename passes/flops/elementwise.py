"""The work beside the products: elementwise arithmetic, reductions, sorting, random bits.

Counted as XLA's ``HloCostAnalysis`` counts it, opcode by opcode, so that
products and this together are what XLA says of a program without loops and
custom calls. Unlike there, a loop's body counts as often as it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hloscope.errors import Unavailable
from hloscope.ir import Computation, Instruction, Shape
from hloscope.ir.attributes import Window
from hloscope.passes.applications import all_reduced_elements, applications
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.passes.flops.counts import Count, Kind, bounded_by_shapes, unknown
from hloscope.passes.flops.custom_calls import elementwise_work
from hloscope.passes.flops.ledger import FlopRow
from hloscope.passes.flops.totals import FlopTotal, Tally, Totals, kinds_of
from hloscope.passes.multiplicity import Multiplicity
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = ["ElementwiseLedger", "count_elementwise"]

# One FLOP an element of the result, whatever its type.
_ARITHMETIC = frozenset(
    """
    abs add and bitcast-convert ceil clamp compare complex convert count-leading-zeros divide
    floor imag is-finite maximum minimum mulhi multiply negate not or popcnt real reduce-precision
    remainder round-nearest-afz round-nearest-even select shift-left shift-right-arithmetic
    shift-right-logical sign stochastic-convert subtract xor
    """.split()  # noqa: SIM905  (a list of these would fill a screen)
)
# One transcendental an element, and no FLOP.
_TRANSCENDENTAL = frozenset(
    """
    acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one
    log log-plus-one logistic power rsqrt sine sinh sqrt tan tanh
    """.split()  # noqa: SIM905
)
# Applies a computation so often, by ``applications``.
_APPLYING = frozenset({"reduce", "reduce-window", "select-and-scatter", "map", "scatter"})
# Products, which the ledger of products counts, and what calls: its callee is counted.
_ELSEWHERE = frozenset(
    """
    async call cholesky conditional convolution dot fft fusion ragged-dot scaled-dot scan
    triangular-solve while
    """.split()  # noqa: SIM905
)
_NO_ARITHMETIC = frozenset(
    """
    add-dependency after-all all-gather all-to-all bitcast broadcast
    collective-broadcast collective-permute concatenate constant copy domain dynamic-reshape
    dynamic-slice dynamic-update-slice gather get-dimension-size get-tuple-element infeed iota
    opt-barrier optimization-barrier outfeed pad parameter partition-id ragged-all-to-all recv
    reduce-scatter replica-id reshape reverse rng-get-and-update-state send set-dimension-size
    slice transpose tuple
    """.split()  # noqa: SIM905
)
_SILENT = _ELSEWHERE | _NO_ARITHMETIC
_SIMPLE = _ARITHMETIC | _TRANSCENDENTAL


@dataclass(frozen=True)
class ElementwiseLedger:
    """FLOPs that are no products, beside the headline.

    Attributes:
        total: Their FLOPs.
        by_kind: The same by kind: elementwise, reduction, other.
        transcendentals: Functions such as ``exp``, which XLA counts apart.
    """

    total: FlopTotal
    by_kind: Mapping[Kind, FlopTotal]
    transcendentals: FlopTotal
    _graph: CallGraph = field(repr=False, compare=False)
    _times: Multiplicity = field(repr=False, compare=False)

    @cached_property
    def rows(self) -> tuple[FlopRow, ...]:
        """One for each instruction that computes, callees' first; made on first use.

        What a reducer does stands with the instruction that applies it.
        """
        return tuple(_Reading(self._graph, self._times).rows())


@analysis
def count_elementwise(graph: CallGraph, times: Multiplicity) -> ElementwiseLedger:
    """Count everything but products that the entry reaches.

    An opcode that no rule knows makes the total open at the top.
    """
    sums = _Reading(graph, times).sums()
    return ElementwiseLedger(
        sums[Tally.ALL], kinds_of(sums), sums[Tally.TRANSCENDENTALS], graph, times
    )


# What one application of a computation costs: FLOPs and transcendentals.
_Cost = tuple[int, int]


class _Reading:
    """One walk over the instructions, callees first."""

    def __init__(self, graph: CallGraph, times: Multiplicity) -> None:
        self.graph = graph
        self.times = times
        self.whole = _run_as_a_whole(graph)
        self.costs: dict[Computation, _Cost] = {}
        self.simple: dict[tuple[str, int, int], Count] = {}
        self.applied: Mapping[Instruction, list[Call]] = {}

    def sums(self) -> Mapping[Kind | Tally, FlopTotal]:
        applied = frozenset({CallKind.ELEMENT, CallKind.OPAQUE})
        totals = Totals(self.graph, self.times.trips, skip=applied)
        for computation in self.graph.order:
            self.applied = self.applications_in(computation)
            whole = computation in self.whole
            exact: dict[Kind, int] = {}
            flops = transcendentals = functions = 0
            for instruction, count in self.counted(computation):
                number = count.flops or 0
                flops += number
                transcendentals += count.transcendentals
                if count.basis is Basis.EXACT:
                    exact[count.kind] = exact.get(count.kind, 0) + number
                    functions += count.transcendentals
                elif whole:
                    totals.add(instruction, count)
            self.costs[computation] = self.with_callees(computation, flops, transcendentals)
            if whole and exact:
                totals.add_exact(computation, exact, functions)
        return totals.finish()

    def rows(self) -> Iterator[FlopRow]:
        self.sums()  # what each reducer costs once
        for computation in self.graph.order:
            if computation in self.whole:
                self.applied = self.applications_in(computation)
                chain, times = self.times.chain(computation), self.times[computation]
                for instruction, count in self.counted(computation):
                    yield FlopRow(instruction, count, times, chain)

    def counted(self, computation: Computation) -> Iterator[tuple[Instruction, Count]]:
        """Instructions that compute, with what one execution of each costs."""
        simple = self.simple
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if opcode in _SILENT:
                continue
            operands = instruction.operands
            shape = operands[0].shape if operands else instruction.shape
            # XLA prints few shapes many times, and the parser keeps each once.
            key = (opcode, id(instruction.shape), id(shape))
            count = simple.get(key)
            if count is None:
                if opcode in _SIMPLE:
                    count = simple[key] = _elementwise(opcode, instruction.shape, shape)
                else:
                    count = self.count(instruction, opcode)
            if count is not None:
                yield instruction, count

    def applications_in(self, computation: Computation) -> Mapping[Instruction, list[Call]]:
        found: dict[Instruction, list[Call]] = {}
        for call in self.graph.calls[computation]:
            if call.kind is CallKind.ELEMENT:
                found.setdefault(call.caller, []).append(call)
        return found

    def with_callees(self, computation: Computation, flops: int, functions: int) -> _Cost:
        """One application of a computation, with what it calls in turn."""
        for call in self.graph.calls[computation]:
            if call.kind is CallKind.ONCE:
                inner = self.costs[call.callee]
                flops, functions = flops + inner[0], functions + inner[1]
        return flops, functions

    def count(self, instruction: Instruction, opcode: str) -> Count | None:
        if opcode.endswith(("-done", "-update")):
            return None
        base = opcode.removesuffix("-start")
        if base in _SILENT:
            return None
        try:
            return self.other(instruction, base)
        except (IndexError, ValueError, Unavailable) as error:
            kind = Kind.REDUCTION if base in _APPLYING else Kind.OTHER
            return unknown(kind, _complaint(error))

    def other(self, instruction: Instruction, opcode: str) -> Count | None:
        if opcode in _APPLYING:
            return self.applying(instruction, opcode)
        if opcode == "custom-call":
            return elementwise_work(instruction)
        counter = _OTHERS.get(opcode)
        if counter is not None:
            return counter(instruction)
        return unknown(Kind.OTHER, f"no rule for the opcode {opcode}")

    def applying(self, instruction: Instruction, opcode: str) -> Count | None:
        """A computation applied so many times, at what it costs once."""
        flops = transcendentals = 0
        for call in self.applied.get(instruction, ()):
            each = applications(instruction, call.attribute) or 0
            cost = self.costs[call.callee]
            flops += each * cost[0]
            transcendentals += each * cost[1]
        shape = instruction.operands[0].shape
        padded = opcode != "reduce" and _is_padded(instruction.window)
        count = Count(
            Kind.ELEMENTWISE if opcode == "map" else Kind.REDUCTION,
            flops,
            Basis.MODELLED if padded else Basis.EXACT,
            "XLA's count, every window full" if padded else "",
            (shape.dtype,),
            transcendentals=transcendentals,
        )
        return bounded_by_shapes(count, shape, instruction.shape)


def _run_as_a_whole(graph: CallGraph) -> frozenset[Computation]:
    """Computations that run by themselves, and are not applied element by element."""
    whole = {graph.order[-1]}
    for computation in reversed(graph.order):
        if computation in whole:
            whole.update(
                call.callee
                for call in graph.calls[computation]
                if call.kind not in (CallKind.ELEMENT, CallKind.OPAQUE)
            )
    return frozenset(whole)


def _elementwise(opcode: str, shape: Shape, operand: Shape) -> Count:
    try:
        elements = shape.num_elements
    except Unavailable as error:
        return unknown(Kind.ELEMENTWISE, str(error))
    function = opcode in _TRANSCENDENTAL
    count = Count(
        Kind.ELEMENTWISE,
        0 if function else elements,
        dtypes=(operand.dtype,),
        transcendentals=elements if function else 0,
    )
    return bounded_by_shapes(count, shape)


def _all_reduce(instruction: Instruction) -> Count:
    """One addition an element, however many take part."""
    flops = all_reduced_elements(instruction)
    dtypes = tuple(dict.fromkeys(operand.shape.dtype for operand in instruction.operands))
    return Count(
        Kind.REDUCTION, flops, Basis.MODELLED, "XLA's count, one addition an element", dtypes
    )


def _sort(instruction: Instruction) -> Count:
    """``n ceil(log2 n)`` comparisons a row; XLA takes all rows for one."""
    keys = instruction.operands[0].shape
    dimension = (instruction.dimensions or (keys.rank - 1,))[0]
    length = keys.dimensions[dimension]
    comparisons = keys.num_elements * max(0, length - 1).bit_length()
    count = Count(
        Kind.OTHER, comparisons, Basis.MODELLED, "n log2 n comparisons of a sort", (keys.dtype,)
    )
    return bounded_by_shapes(count, keys)


def _top_k(instruction: Instruction) -> Count:
    """``n ceil(log2 k)`` comparisons a row, with a heap of ``k``; XLA counts nothing."""
    keys = instruction.operands[0].shape
    kept = max(1, instruction.integer("k", 1))
    comparisons = keys.num_elements * max(1, (kept - 1).bit_length())
    count = Count(
        Kind.OTHER, comparisons, Basis.MODELLED, "n log2 k comparisons of a heap", (keys.dtype,)
    )
    return bounded_by_shapes(count, keys)


def _random_bits(instruction: Instruction) -> Count:
    """A transcendental for each element made, the new state's among them, as XLA counts."""
    shape = instruction.shape
    parts = shape.elements if shape.is_tuple else (shape,)
    return Count(
        Kind.OTHER,
        0,
        Basis.MODELLED,
        "XLA's count, one transcendental an element",
        (parts[-1].dtype,),
        transcendentals=sum(part.num_elements for part in parts),
    )


def _batch_norm(_: Instruction) -> Count:
    return unknown(Kind.ELEMENTWISE, "no rule for a batch norm that is not expanded")


_OTHERS = {
    "all-reduce": _all_reduce,
    "sort": _sort,
    "topk": _top_k,
    "rng": _random_bits,
    "rng-bit-generator": _random_bits,
    "batch-norm-training": _batch_norm,
    "batch-norm-inference": _batch_norm,
    "batch-norm-grad": _batch_norm,
}


def _is_padded(window: Window | None) -> bool:
    return window is not None and any(
        d.padding_low or d.padding_high or d.base_dilation != 1 for d in window.dimensions
    )


def _complaint(error: Exception) -> str:
    return "its shapes do not fit it" if isinstance(error, IndexError) else str(error)
