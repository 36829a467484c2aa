"""The whole ledger: what each launched instruction computes and moves.

A launch is what the device runs as one piece: a fusion, a library call, a lone
instruction. The products and the elementwise work inside it are summed with
the bytes that it reads and writes, and multiplied by how often it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hloscope.ir import Computation, Instruction
from hloscope.passes.execution import Execution
from hloscope.passes.flops.elementwise import ElementwiseLedger
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.flops.totals import NOTHING, FlopTotal
from hloscope.passes.multiplicity import Multiplicity, Times
from hloscope.passes.traffic import Traffic, TrafficRow
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = ["WorkLedger", "WorkRow", "sum_work"]


@dataclass(frozen=True, slots=True)
class WorkRow:
    """One launch, over all of its runs.

    Attributes:
        instruction: What is launched.
        times: Runs per execution of the program.
        chain: The calls that lead to it.
        products: FLOPs of the products inside.
        elementwise: FLOPs of everything else inside, as XLA counts it.
        transcendentals: Functions such as ``exp``, each once.
        traffic: Bytes of one run.
        dtypes: Operand types of its products, most costly first.
        accumulation: Types in which its products are summed.
    """

    instruction: Instruction
    times: Times
    chain: str
    products: FlopTotal
    elementwise: FlopTotal
    transcendentals: int
    traffic: TrafficRow
    dtypes: tuple[str, ...]
    accumulation: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkLedger:
    """Every launch that does something, callees' first.

    Attributes:
        rows: The launches.
        elsewhere: FLOPs in computations that no launch holds, such as the body
            of a custom call.
    """

    rows: tuple[WorkRow, ...]
    elsewhere: FlopTotal


@dataclass(slots=True)
class _Inside:
    """What stands inside one launch."""

    products: FlopTotal = NOTHING
    elementwise: FlopTotal = NOTHING
    exact: int = 0  # elementwise FLOPs of exact counts, of which there are many thousands
    transcendentals: int = 0
    dtypes: dict[str, None] = field(default_factory=dict)
    accumulation: dict[str, None] = field(default_factory=dict)

    def all_elementwise(self) -> FlopTotal:
        """Both parts of it together."""
        if not self.exact:
            return self.elementwise
        exact = FlopTotal(self.exact, self.exact, self.exact)
        return exact if self.elementwise is NOTHING else self.elementwise + exact


_NOTHING_INSIDE = _Inside()


@analysis
def sum_work(
    execution: Execution,
    products: FlopLedger,
    elementwise: ElementwiseLedger,
    traffic: Traffic,
    times: Multiplicity,
) -> WorkLedger:
    """Join the ledgers at the instruction that launches the work."""
    inside: dict[Instruction, _Inside] = {}
    elsewhere = NOTHING
    by_cost = sorted(products.rows, key=lambda row: -row.nominal)
    for row, launch in _launches(execution, by_cost):
        if launch is None:
            elsewhere += row.total
            continue
        found = inside.setdefault(launch, _Inside())
        found.products += row.total
        found.dtypes |= dict.fromkeys(row.count.dtypes)
        if row.count.accumulation:
            found.accumulation[row.count.accumulation] = None
    for row, launch in _launches(execution, elementwise.rows):
        if launch is None:
            elsewhere += row.total
            continue
        found = inside.setdefault(launch, _Inside())
        count, runs = row.count, row.times
        if count.basis is Basis.EXACT and runs.low == runs.high and count.flops is not None:
            found.exact += count.flops * runs.low
        else:
            found.elementwise += row.total
        found.transcendentals += count.transcendentals * runs.nominal
    chains: dict[Computation, str] = {}
    rows = []
    for moves in traffic.rows:
        computation = moves.instruction.computation
        if computation not in chains:
            chains[computation] = times.chain(computation)
        found = inside.get(moves.instruction, _NOTHING_INSIDE)
        rows.append(_row(moves, found, chains[computation]))
    return WorkLedger(tuple(rows), elsewhere)


def _launches(
    execution: Execution, rows: Iterable[FlopRow]
) -> Iterable[tuple[FlopRow, Instruction | None]]:
    return ((row, execution.launch_of(row.instruction)) for row in rows)


def _row(moves: TrafficRow, found: _Inside, chain: str) -> WorkRow:
    return WorkRow(
        moves.instruction,
        moves.times,
        chain,
        found.products,
        found.all_elementwise(),
        found.transcendentals,
        moves,
        tuple(found.dtypes),
        tuple(found.accumulation),
    )
