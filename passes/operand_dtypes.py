"""In which type a product's operands were written, before XLA widened them.

A CPU has no bfloat16 units, so XLA converts both sides of a bfloat16 product
to float32 first. Read from the product alone, every bfloat16 model would look
like a float32 one there. The same goes for pieces that XLA splits off: what
counts is what the operands hold, not the type of the partial sums.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction
from hloscope.ir.dtypes import BITS, is_floating
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.passes.flops.call_config import nested, section
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.pipeline.analyses import analysis

__all__ = ["OperandDtypes", "find_operand_dtypes"]

_MAX_STEPS = 300

_NARROW_ALGORITHM = re.compile(r"(?:alg_)?dot_(bf16|f16)_\1_(?:bf16|f16|f32)")

# The result holds elements of operand 0 and nothing else (a pad also its padding value).
_MOVES = frozenset(
    """
    add-dependency all-gather all-to-all bitcast broadcast collective-permute copy copy-done
    copy-start dynamic-slice gather opt-barrier pad reduce-precision reshape reverse slice transpose
    """.split()  # noqa: SIM905
)
_MOVING_CALLS = frozenset({"Sharding", "MoveToDevice", "MoveToHost"})
_WIDE = frozenset({"f32", "f64"})


@dataclass(frozen=True, slots=True)
class OperandDtypes:
    """Element types of a product's operands as the program had them.

    Attributes:
        by_product: For each row of the ledger, the types of its two sides.
    """

    by_product: Mapping[Instruction, tuple[str, ...]]


@analysis
def find_operand_dtypes(graph: CallGraph, ledger: FlopLedger) -> OperandDtypes:
    """Look through the conversions that XLA put in front of each product.

    A conversion that the program asked for carries JAX's name for it,
    ``convert_element_type``, and is taken at its word. A product whose
    algorithm, or whose other operand, makes the matrix unit round to a narrow
    type is one in that type.
    """
    tracer = _Tracer(graph.callers)
    return OperandDtypes({row.instruction: _sides(row, tracer) for row in ledger.rows})


def _sides(row: FlopRow, tracer: _Tracer) -> tuple[str, ...]:
    written = row.count.dtypes
    if row.count.kind is Kind.KERNEL or not _WIDE.intersection(written):
        return written
    narrow = _rounded_to(row.instruction) or _met_by(row)
    if narrow is not None:
        return (narrow,) * len(written)
    return tuple(
        tracer.dtype(operand) if dtype in _WIDE else dtype
        for operand, dtype in zip(row.instruction.operands, written, strict=False)
    )


def _rounded_to(product: Instruction) -> str | None:
    """The narrow type that the product's algorithm rounds both sides to, if it does.

    Algorithms that add up several narrow passes (``_x3``) stand in for float32.
    """
    text = product.attributes.get("algorithm", "")
    if product.opcode.startswith("custom-call"):
        config = section(product.backend_config, "gemm_backend_config")
        text = str(nested(config, "precision_config").get("algorithm", ""))
    match = _NARROW_ALGORITHM.fullmatch(text.lower())
    return match[1] if match else None


def _met_by(row: FlopRow) -> str | None:
    """The narrow type that a float32 operand meets in the instruction itself.

    Where the precision asked for allows it, TPU compilers convert one side of
    a float32 product to bfloat16 and let the matrix unit round the other.
    """
    if "high" in row.instruction.attributes.get("operand_precision", ""):
        return None
    return next((d for d in row.count.dtypes if is_floating(d) and BITS[d] <= 16), None)


class _Tracer:
    """Follows a value back to where its type was chosen."""

    def __init__(self, callers: Mapping[Computation, tuple[Call, ...]]) -> None:
        self.callers = callers
        self.known: dict[Instruction, str] = {}

    def dtype(self, operand: Instruction) -> str:
        """The type in which an operand was written."""
        if operand not in self.known:
            self.known[operand] = self.trace(operand)
        return self.known[operand]

    def trace(self, value: Instruction) -> str:
        """Follow data movement backwards to a conversion, or give up.

        Tuples are tracked by ``path``: the indices still to be taken of the value.
        """
        wide = value.shape.dtype
        path: tuple[int, ...] = ()
        for _ in range(_MAX_STEPS):
            opcode, operands = value.opcode, value.operands
            if opcode == "convert" and operands:
                return self.converted(value, wide)
            if opcode == "get-tuple-element" and operands:
                path = (value.tuple_index or 0, *path)
                value = operands[0]
            elif opcode == "tuple" and path and path[0] < len(operands):
                value, path = operands[path[0]], path[1:]
            elif operands and _moves(value):
                value = operands[0]
            elif opcode in ("fusion", "call") and value.called:
                value = value.called[0].root
            elif opcode == "parameter":
                outer = self.handed_in(value, path)
                if outer is None:
                    return wide
                value = outer
            else:
                return wide
        return wide

    def converted(self, convert: Instruction, wide: str) -> str:
        narrow = convert.operands[0].shape.dtype
        if not is_floating(narrow) or BITS[narrow] >= BITS[wide]:
            return wide
        return wide if _asked_for(convert) else narrow

    def handed_in(self, parameter: Instruction, path: tuple[int, ...]) -> Instruction | None:
        """What a parameter stands for, where one place calls its computation.

        A loop's tuple is followed out of the loop where the body hands the
        element on untouched.
        """
        calls = self.callers.get(parameter.computation, ())
        if len(calls) != 1:
            return None
        call = calls[0]
        number = parameter.parameter_number or 0
        if call.kind is CallKind.ONCE and call.caller.opcode != "conditional":
            operands = call.caller.operands
            return operands[number] if number < len(operands) else None
        if call.kind is CallKind.BODY and path and call.caller.operands:
            element = _element(call.callee.root, path[0])
            if element is not None and _same_element(element, parameter, path[0]):
                return call.caller.operands[0]
        return None


def _element(root: Instruction, index: int) -> Instruction | None:
    if root.opcode != "tuple" or index >= len(root.operands):
        return None
    value = root.operands[index]
    while value.opcode in ("copy", "bitcast") and value.operands:
        value = value.operands[0]
    return value


def _same_element(value: Instruction, parameter: Instruction, index: int) -> bool:
    return (
        value.opcode == "get-tuple-element"
        and value.operands == (parameter,)
        and value.tuple_index == index
    )


def _moves(value: Instruction) -> bool:
    """Whether it hands its first operand on; a copy-start is reached through copy-done."""
    if value.opcode == "custom-call":
        return value.custom_call_target in _MOVING_CALLS
    return value.opcode in _MOVES


def _asked_for(convert: Instruction) -> bool:
    """Whether the program wrote this conversion.

    Before jaxlib 0.5 the primitive's name is followed by its parameters in brackets.
    """
    first = convert.op_name.split(";")[0]
    return first.rsplit("/", 1)[-1].split("[")[0] == "convert_element_type"
