"""Products by the types that they multiply and add up in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hloscope.errors import InputError
from hloscope.ir import Computation, Instruction
from hloscope.ir.dtypes import BITS
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.passes.flops.call_config import nested, section
from hloscope.passes.flops.counts import result_of
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.operand_dtypes import OperandDtypes
from hloscope.passes.origins import moves
from hloscope.pipeline.analyses import analysis

__all__ = ["DtypeProducts", "PartialSums", "ProductDtypes", "find_dtype_products", "rounding"]

_MAX_STEPS = 60


class PartialSums(StrEnum):
    """Whose decision it was to add a product up in pieces."""

    NONE = ""
    XLA = "split by XLA"
    USER = "summed by the program"


@dataclass(frozen=True, slots=True)
class ProductDtypes:
    """Element types of one product.

    Attributes:
        row: The product.
        written: Types of its two sides as the program had them.
        multiplied: Types that its instruction takes, after what XLA converted.
        result: Type that it hands on.
        accumulation: Type that its sums are kept in, as far as the program asks
            for one; empty where it does not say.
        rounding: How float32 operands are rounded on the way in, see :func:`rounding`.
        partial: Whether the result is partial sums that a reduction adds up next.
    """

    row: FlopRow
    written: tuple[str, ...]
    multiplied: tuple[str, ...]
    result: str
    accumulation: str
    rounding: str
    partial: PartialSums

    @property
    def quantized(self) -> bool:
        """Whether both sides are multiplied in a type of at most eight bits."""
        return bool(self.multiplied) and all(BITS.get(d, 64) <= 8 for d in self.multiplied)


@dataclass(frozen=True, slots=True)
class DtypeProducts:
    """The products of a program with their types.

    Attributes:
        rows: One for each row of the FLOP ledger.
    """

    rows: Sequence[ProductDtypes]

    @property
    def mixed_accumulation(self) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Operand types whose products are added up in more than one type, with these.

        A side that the matrix unit itself rounds is not counted as of that type.
        """
        found: dict[tuple[str, ...], dict[str, None]] = {}
        for row in self.rows:
            known = row.accumulation and row.row.nominal and row.partial is not PartialSums.XLA
            if known and len(set(row.multiplied)) == 1:
                found.setdefault(row.written, {})[row.accumulation] = None
        return {key: tuple(sums) for key, sums in found.items() if len(sums) > 1}


@analysis
def find_dtype_products(
    ledger: FlopLedger, dtypes: OperandDtypes, graph: CallGraph
) -> DtypeProducts:
    """Give each product of the ledger its types."""
    rows = [
        ProductDtypes(
            row,
            dtypes.by_product[row.instruction],
            row.count.dtypes,
            result_of(row.instruction).dtype,
            row.count.accumulation,
            rounding(row.instruction, row.count.dtypes),
            _partial_sums(row.instruction, graph.callers),
        )
        for row in ledger.rows
    ]
    return DtypeProducts(rows)


def rounding(product: Instruction, dtypes: Sequence[str]) -> str:
    """How a product rounds float32 operands, where its algorithm or precision says.

    ``TF32`` and ``bf16`` are one pass over rounded operands, ``bf16 x3`` and the
    like are several passes that make up for it, ``full`` is none, and ``high``
    is what ``Precision.HIGH`` leaves to the device: TF32 on a GPU, three passes
    in bfloat16 on a TPU. Empty where the instruction says nothing, or has no
    float32 operand.
    """
    if "f32" not in dtypes:
        return ""
    algorithm = product.attributes.get("algorithm", "")
    precision: tuple[str, ...] = ()
    if product.opcode.startswith("custom-call"):
        config = nested(section(product.backend_config, "gemm_backend_config"), "precision_config")
        algorithm = str(config.get("algorithm", ""))
        listed = config.get("operand_precision", ())
        precision = tuple(map(str, listed)) if isinstance(listed, list | tuple) else ()
    else:
        text = product.attributes.get("operand_precision", "")
        precision = tuple(text.strip("{}").split(",")) if text else ()
    parts = algorithm.lower().removeprefix("alg_").split("_")
    if parts[0] == "dot" and len(parts) >= 4:
        passes = f" {parts[4].lower()}" if len(parts) > 4 and parts[4].startswith("x") else ""
        if parts[1] == "f32":
            return "full"
        return f"{'TF32' if parts[1] == 'tf32' else parts[1]}{passes}"
    asked = {name.strip().lower() for name in precision}
    return "full" if "highest" in asked else "high" if "high" in asked else ""


def _partial_sums(
    product: Instruction, callers: Mapping[Computation, tuple[Call, ...]]
) -> PartialSums:
    """Whether every use of a batched product adds up one of its batch dimensions.

    XLA's split-K writes a product as several over parts of the contracted
    dimension, stacked in a batch dimension of their own. The reduction over it
    carries the product's name, where the program's own carries ``reduce_sum``.
    """
    try:
        batch = product.opcode == "dot" and product.dot_dims.lhs_batch
    except InputError:
        return PartialSums.NONE
    if not batch:
        return PartialSums.NONE
    reduces = _consumers(product, callers)
    found = {_whose(reduce) for reduce in reduces}
    return found.pop() if len(found) == 1 else PartialSums.NONE


def _whose(user: Instruction) -> PartialSums:
    if user.opcode != "reduce" or len(user.dimensions) != 1 or not _adds(user):
        return PartialSums.NONE
    name = user.op_name.split(";")[0].rsplit("/", 1)[-1].split("[")[0]
    return PartialSums.USER if name in ("reduce_sum", "reduce") else PartialSums.XLA


def _adds(reduce: Instruction) -> bool:
    return any(computation.root.opcode == "add" for computation in reduce.called)


def _consumers(
    value: Instruction, callers: Mapping[Computation, tuple[Call, ...]]
) -> Sequence[Instruction]:
    """What uses a value once it is moved and widened, through fusions' edges."""
    pending, seen = [value], {value}
    found: list[Instruction] = []
    for _ in range(_MAX_STEPS):
        if not pending:
            return found
        current = pending.pop()
        onwards: list[Instruction] = []
        if current.is_root:
            calls = callers.get(current.computation, ())
            if len(calls) != 1 or calls[0].kind is not CallKind.ONCE:
                return ()
            onwards.append(calls[0].caller)
        for user in current.users:
            if user.opcode == "fusion" and user.called:
                at = user.operands.index(current)
                onwards.append(user.called[0].parameters[at])
            elif user.opcode == "convert" or (moves(user) and user.operands[0] is current):
                onwards.append(user)
            else:
                found.append(user)
        pending += [one for one in onwards if one not in seen]
        seen.update(onwards)
    return ()
