"""Exchanges that carry a wider type than what is made of them, and sums in a narrow one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction
from hloscope.ir.dtypes import BITS, is_floating
from hloscope.passes.call_graph import CallGraph, CallKind
from hloscope.passes.collectives import SUMS, Collective, CollectiveKind, Collectives
from hloscope.passes.converts import is_asked_for
from hloscope.passes.operand_dtypes import OperandDtypes
from hloscope.passes.origins import Origins, moves
from hloscope.pipeline.analyses import analysis

__all__ = ["CollectiveDtypes", "NarrowSum", "WideCollective", "find_collective_dtypes"]

_MAX_VALUES = 200
_MOVERS = frozenset(
    {
        CollectiveKind.ALL_GATHER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.RAGGED_ALL_TO_ALL,
        CollectiveKind.PERMUTE,
        CollectiveKind.BROADCAST,
    }
)


@dataclass(frozen=True, slots=True)
class WideCollective:
    """An exchange that could carry a narrower type with the same result.

    Attributes:
        collective: The exchange.
        wide: The type that it carries.
        narrow: The type that would do.
        converts: The conversions that narrow its result; empty where its operand
            was narrow and widened in front of it, or where products round it.
        how: What makes the narrow type enough, in words.
        widened_before: Whether that is a narrow operand, widened in front of it.
    """

    collective: Collective
    wide: str
    narrow: str
    converts: Sequence[Instruction]
    how: str
    widened_before: bool = False

    @property
    def saved_bytes(self) -> int | None:
        """Bytes on the wire per execution, of one device, that a swap would save."""
        wire = self.collective.wire_bytes
        if wire is None:
            return None
        return wire * (BITS[self.wide] - BITS[self.narrow]) // BITS[self.wide] * self.runs

    @property
    def runs(self) -> int:
        """Runs per execution, each unknown loop run once."""
        return self.collective.times.nominal


@dataclass(frozen=True, slots=True)
class NarrowSum:
    """A sum over devices in a floating-point type of at most sixteen bits.

    Attributes:
        collective: The exchange.
        dtype: The type that it adds up in.
        gradient: Whether its name, or that of what it sums, says that
            differentiation made it.
    """

    collective: Collective
    dtype: str
    gradient: bool


@dataclass(frozen=True, slots=True)
class CollectiveDtypes:
    """What the types on the wire could be, and where sums are narrow."""

    wide: Sequence[WideCollective]
    narrow_sums: Sequence[NarrowSum]


@analysis
def find_collective_dtypes(
    collectives: Collectives, origins: Origins, graph: CallGraph, dtypes: OperandDtypes
) -> CollectiveDtypes:
    """Compare the type that each exchange carries with what is made of its result.

    An exchange that only moves elements gives the same values when they are
    rounded before it instead of after. Where anything uses the wide result as
    it is, the wide type stays, and so it does where XLA itself widened a narrow
    value for a device that exchanges none.
    """
    wide, sums = [], []
    uses = _Uses(graph, dtypes)
    for row in collectives.rows:
        operand = row.instruction.operands[0] if row.instruction.operands else None
        if operand is None or not operand.shape.is_array:
            continue
        dtype = operand.shape.dtype
        if not is_floating(dtype):
            continue
        if row.kind in _MOVERS and BITS[dtype] > 16 and not _widened_by_xla(row, origins):
            found = _widened_before(row, origins) or uses.narrowed_after(row)
            if found is not None:
                wide.append(found)
        if row.kind in SUMS and BITS[dtype] <= 16:
            sums.append(NarrowSum(row, dtype, _is_gradient(row, origins.of(operand))))
    return CollectiveDtypes(wide, sums)


def _is_gradient(row: Collective, summed: Instruction) -> bool:
    """Whether JAX's scope of transposed code stands in a name; TPU compilers drop some."""
    named = (row.instruction, row.launch, summed)
    return any("transpose(" in instruction.op_name for instruction in named)


def _widened_by_xla(row: Collective, origins: Origins) -> bool:
    """Whether XLA itself put a conversion in front of it, as it does on CPUs."""
    origin = [origins.of(operand) for operand in row.instruction.operands]
    return any(
        o.opcode == "convert" and o.operands and not is_asked_for(o) and _narrower(o)
        for o in origin
    )


def _narrower(convert: Instruction) -> bool:
    """Whether a conversion's operand is a narrower floating-point value than its result."""
    source, result = convert.operands[0].shape.dtype, convert.shape.dtype
    return is_floating(source) and BITS[source] < BITS[result]


def _widened_before(row: Collective, origins: Origins) -> WideCollective | None:
    """Every operand is a narrow value that the program widened just in front."""
    operands = row.instruction.operands
    origin = [origins.of(operand) for operand in operands]
    if not all(o.opcode == "convert" and o.operands and is_asked_for(o) for o in origin):
        return None
    sources = [o.operands[0].shape.dtype for o in origin]
    if not all(is_floating(s) for s in sources):
        return None
    narrow, wide = max(sources, key=BITS.__getitem__), operands[0].shape.dtype
    if BITS[narrow] >= BITS[wide]:
        return None
    how = f"{narrow} was widened in front of it"
    return WideCollective(row, wide, narrow, (), how, widened_before=True)


class _Uses:
    """What becomes of a value after it is moved."""

    def __init__(self, graph: CallGraph, dtypes: OperandDtypes) -> None:
        self.graph = graph
        self.dtypes = dtypes

    def narrowed_after(self, row: Collective) -> WideCollective | None:
        """Every use of the result converts it to a narrower floating-point type."""
        wide = row.instruction.operands[0].shape.dtype
        ends = self.ends(row.instruction)
        if not ends:
            return None
        narrow, converts, rounded = [], [], False
        for end, value in ends:
            if end.opcode == "convert" and is_floating(end.shape.dtype) and is_asked_for(end):
                narrow.append(end.shape.dtype)
                converts.append(end)
            elif end in self.dtypes.by_product and value in end.operands:
                side = end.operands.index(value)
                written = self.dtypes.by_product[end]
                narrow.append(written[side] if side < len(written) else wide)
                rounded = True
            else:
                return None
        widest = max(narrow, key=lambda dtype: BITS.get(dtype, 64))
        if BITS.get(widest, 64) >= BITS[wide]:
            return None
        how = f"its products round it to {widest}" if rounded and not converts else ""
        return WideCollective(
            row, wide, widest, tuple(converts), how or f"every use converts it to {widest}"
        )

    def ends(self, start: Instruction) -> Sequence[tuple[Instruction, Instruction]]:
        """Users that do more than move the value, each with what they take.

        Empty where it leaves the program, enters a loop, or spreads too far.
        """
        pending, seen = [start], {start}
        found: list[tuple[Instruction, Instruction]] = []
        while pending:
            value = pending.pop()
            onwards: list[Instruction] = []
            if value.is_root:
                caller = self._caller(value.computation)
                if caller is None:
                    return ()
                onwards.append(caller)
            for user in value.users:
                if user.opcode in ("fusion", "call") and user.called:
                    parameters = user.called[0].parameters
                    onwards += [parameters[at] for at, o in enumerate(user.operands) if o is value]
                elif _passes_on(user, value):
                    onwards.append(user)
                else:
                    found.append((user, value))
            pending += [one for one in onwards if one not in seen]
            seen.update(onwards)
            if len(seen) > _MAX_VALUES:
                return ()
        return found

    def _caller(self, computation: Computation) -> Instruction | None:
        calls = self.graph.callers.get(computation, ())
        return calls[0].caller if len(calls) == 1 and calls[0].kind is CallKind.ONCE else None


def _passes_on(user: Instruction, value: Instruction) -> bool:
    """Whether a user's result is the value's elements; a tuple's other parts come along."""
    if user.opcode.endswith("-done") or user.opcode == "get-tuple-element":
        return True
    return moves(user) and user.operands[0] is value
