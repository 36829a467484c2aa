"""What a step computes again in its backward pass, region by region, and what that spares.

``jax.checkpoint`` throws values of the forward pass away and computes them again
where the backward pass needs them. In the optimized HLO its work is told by the
op_name; XLA's own rematerialization clones instructions and names them so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hloscope.ir import Instruction, Module
from hloscope.passes.buffer_kinds import Phase, named_origin, phase_of
from hloscope.passes.exchanges import Exchange, Exchanges
from hloscope.passes.execution import Execution
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.scopes import collapse_scope
from hloscope.passes.step_parts import StepPart, is_checkpointed, is_replay, is_xla_repetition
from hloscope.pipeline.analyses import analysis

__all__ = ["Remat", "RematRegion", "find_remat"]

_DEEPEST = 9


@dataclass(slots=True)
class RematRegion:
    """What one ``jax.checkpoint`` (or several of one scope) runs again.

    Attributes:
        scope: The user's scopes around the checkpoint; empty where there are none.
        launches: Instructions launched again, all runs together, nominally.
        products: Products computed again.
        flops: FLOPs of them in one execution, nominally.
        exchanges: Exchanges between devices that are run again.
        custom_calls: Library calls and kernels that are run again.
        rebuilt_bytes: Bytes of the values computed again that the backward pass
            reads, over all runs: what would have to be kept without the
            checkpoint. ``None`` in a module that is not scheduled.
    """

    scope: str
    launches: int = 0
    products: list[FlopRow] = field(default_factory=list)
    flops: int = 0
    exchanges: list[Exchange] = field(default_factory=list)
    custom_calls: list[Instruction] = field(default_factory=list)
    rebuilt_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Remat:
    """Everything that a step computes again.

    Attributes:
        regions: JAX's checkpoints, most FLOPs first.
        asked: Whether any instruction stands in a checkpoint at all.
        named: Whether any instruction has an op_name, which tells what runs again.
        clones: Launches that XLA's own rematerialization repeats.
        clone_flops: FLOPs of the products among them in one execution, nominally.
    """

    regions: Sequence[RematRegion]
    asked: bool
    named: bool
    clones: Sequence[Instruction]
    clone_flops: int

    @property
    def flops(self) -> int:
        """FLOPs that checkpoints run again in one execution, nominally."""
        return sum(region.flops for region in self.regions)

    @property
    def rebuilt_bytes(self) -> int | None:
        """Bytes of all values that are computed again in place of being kept."""
        parts = [region.rebuilt_bytes for region in self.regions]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


@analysis
def find_remat(
    module: Module,
    execution: Execution,
    ledger: FlopLedger,
    exchanges: Exchanges,
    ranges: LiveRanges | None,
) -> Remat:
    """Group what is computed again by the scope of its checkpoint; linear."""
    regions: dict[str, RematRegion] = {}

    def region_of(instruction: Instruction) -> RematRegion:
        scope = region_scope(instruction.op_name)
        return regions.setdefault(scope, RematRegion(scope))

    asked = named = False
    for computation in module.computations.values():
        for instruction in computation.instructions:
            named = named or bool(instruction.op_name)
            asked = asked or is_checkpointed(instruction)
    clones = []
    for instruction in execution.launched():
        if is_xla_repetition(instruction):
            clones.append(instruction)
        elif is_replay(instruction):
            region = region_of(instruction)
            region.launches += execution.times[instruction.computation].nominal
            if instruction.opcode == "custom-call":
                region.custom_calls.append(instruction)
    clone_flops = 0
    for row in ledger.rows:
        if row.cloned:
            clone_flops += row.nominal
        elif is_replay(row.instruction):
            region = region_of(row.instruction)
            region.products.append(row)
            region.flops += row.nominal
    for exchange in exchanges.rows:
        if exchange.part is StepPart.REPLAYED:
            region_of(exchange.named).exchanges.append(exchange)
    if ranges is not None:
        for region in regions.values():
            region.rebuilt_bytes = 0
        for instruction, size in _rebuilt(ranges, execution):
            region = region_of(instruction)
            region.rebuilt_bytes = (region.rebuilt_bytes or 0) + size
    order = sorted(regions.values(), key=lambda region: (-region.flops, region.scope))
    return Remat(order, asked, named, clones, clone_flops)


def region_scope(op_name: str) -> str:
    """The user's scopes in front of the checkpoint that an op_name stands in."""
    before, _, _ = op_name.partition(";")[0].partition("/rematted_computation/")
    parts = collapse_scope(f"{before}/_", _DEEPEST).split("/")
    # A checkpoint repeats the scope that it stands in.
    return "/".join(part for n, part in enumerate(parts) if n == 0 or part != parts[n - 1])


def _rebuilt(ranges: LiveRanges, execution: Execution) -> Iterator[tuple[Instruction, int]]:
    """Values that a checkpoint computes again and the backward pass reads, with their bytes."""
    for frame in ranges.frames:
        times = execution.times.get(frame.computation)
        for buffer in (*frame.buffers, *frame.lent):
            maker = next((w for w in map(named_origin, buffer.writers) if is_replay(w)), None)
            if maker is not None and any(map(_is_backward, buffer.readers)):
                yield maker, buffer.size * (times.nominal if times is not None else 1)


def _is_backward(reader: Instruction) -> bool:
    named = named_origin(reader)
    return phase_of(named.op_name) is Phase.BACKWARD and not is_replay(named)
