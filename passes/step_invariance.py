"""What comes out the same in every step, because nothing that changes goes into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module
from hloscope.ir.closed_over import ClosedOver
from hloscope.ir.signature import Role, Signature
from hloscope.passes.constants import Constants
from hloscope.passes.flops.counts import HEADLINE
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.traffic import Traffic, TrafficRow
from hloscope.passes.value_flow import ValueFlow
from hloscope.pipeline.analyses import analysis

__all__ = ["InvariantCone", "StepInvariance", "find_step_invariance"]

_CHANGES = frozenset({"infeed", "recv", "recv-done", "rng", "rng-get-and-update-state"})
_SUBSTANCE_BYTES = 1024


@dataclass(slots=True)
class InvariantCone:
    """Products that hang together and depend on nothing that changes between steps.

    Attributes:
        products: The products, in the order of the ledger.
        flops: FLOPs of them in one step, nominally.
        launches: Launches in one step, nominally, that do nothing else.
        moved_bytes: Bytes of device memory that these read and write in one step,
            nominally; ``None`` where that of one is unknown.
        names: Frozen leaves, closed-over arrays and constants that go into it.
    """

    products: list[FlopRow] = field(default_factory=list)
    flops: int = 0
    launches: int = 0
    moved_bytes: int | None = 0
    names: dict[str, None] = field(default_factory=dict)

    def add(self, launch: TrafficRow) -> None:
        """Count a launch that belongs to it."""
        size, times = launch.moved(), launch.times.nominal
        self.launches += times
        if size is None or self.moved_bytes is None:
            self.moved_bytes = None
        else:
            self.moved_bytes += size * times


@dataclass(frozen=True, slots=True)
class StepInvariance:
    """Everything of a step that is computed again to the same result.

    Attributes:
        cones: With most FLOPs first.
        by_names: Whether that arguments are frozen is guessed from their names.
    """

    cones: Sequence[InvariantCone]
    by_names: bool


@analysis
def find_step_invariance(
    module: Module,
    signature: Signature,
    flow: ValueFlow,
    ledger: FlopLedger,
    traffic: Traffic,
    constants: Constants,
    closed_over: ClosedOver | None = None,
) -> StepInvariance:
    """Follow what changes forwards; what it does not reach is the same in every step.

    State, batch, random keys and arguments of which nothing says that they are
    frozen change. So does what has a side effect or comes from outside. In a
    loop a value is the same if each of its runs makes the same of it in every
    step. Linear in the module.

    Raises:
        Unavailable: No argument is frozen and the program holds no array.
    """
    named = _frozen(module, signature, flow, closed_over)
    held = {constant.instruction: constant for constant in constants.constants}
    for instruction, nodes in flow.nodes.items():
        if instruction.opcode == "constant" and instruction.shape.bytes >= _SUBSTANCE_BYTES:
            known = held.get(instruction)
            name = ", ".join(known.names) if known is not None else ""
            named[nodes[0]] = name or f"constant {instruction.name}"
    if not named:
        raise Unavailable(
            "no argument is known to be frozen, and the program holds no array of constants"
        )
    changes = _reached(_changing(module, flow, named), flow.users())
    parts = _Parts(len(flow.inputs))
    fed: list[tuple[int, str]] = []
    for node, inputs in enumerate(flow.inputs):
        if not changes[node]:
            for source in inputs:
                if not _is_given(flow.makers[source]):
                    parts.join(node, source)
                elif source in named:
                    fed.append((node, named[source]))
    cones: dict[int, InvariantCone] = {}
    for row in ledger.rows:
        own = flow.nodes.get(row.instruction)
        if own and row.count.kind in HEADLINE and row.nominal and not changes[own[0]]:
            cone = cones.setdefault(parts.of(own[0]), InvariantCone())
            cone.products.append(row)
            cone.flops += row.nominal
    for node, name in fed:
        found = cones.get(parts.of(node))
        if found is not None:
            found.names[name] = None
    for moved in traffic.rows:
        own = flow.nodes.get(moved.instruction)
        if own and not any(changes[node] for node in own):
            found = cones.get(parts.of(own[0]))
            if found is not None:
                found.add(moved)
    ordered = sorted(cones.values(), key=lambda cone: -cone.flops)
    return StepInvariance(ordered, signature.basis != "captured")


def _frozen(
    module: Module, signature: Signature, flow: ValueFlow, closed_over: ClosedOver | None
) -> dict[int, str]:
    """Nodes of the arguments that no step changes, with their names."""
    names = {
        number: leaf.path
        for number, leaf in signature.by_parameter().items()
        if leaf.role is Role.FROZEN
    }
    if closed_over is not None:
        for number, array in closed_over.by_parameter.items():
            names[number] = ", ".join(array.names) or f"a closed-over array ({array.dtype})"
    slots = [node for parameter in module.entry.parameters for node in flow.nodes[parameter]]
    return {node: names[number] for number, node in enumerate(slots) if number in names}


def _changing(module: Module, flow: ValueFlow, named: Mapping[int, str]) -> Iterator[int]:
    """Nodes that may differ from step to step whatever they are made from."""
    for parameter in module.entry.parameters:
        yield from (node for node in flow.nodes[parameter] if node not in named)
    yield from flow.opaque
    for instruction, nodes in flow.nodes.items():
        if instruction.opcode in _CHANGES or _has_effect(instruction):
            yield from nodes


def _has_effect(instruction: Instruction) -> bool:
    if instruction.opcode != "custom-call":
        return False
    if instruction.attributes.get("custom_call_has_side_effect") == "true":
        return True
    return "callback" in (instruction.custom_call_target or "").lower()


def _is_given(maker: Instruction) -> bool:
    """Whether nothing is computed: what shares an array need not hang together."""
    opcode = maker.opcode
    return opcode in ("constant", "iota") or (opcode == "parameter" and maker.computation.is_entry)


def _reached(starts: Iterable[int], users: Sequence[Sequence[int]]) -> bytearray:
    """A mark on each node that one of some nodes goes into."""
    marks = bytearray(len(users))
    pending = list(starts)
    while pending:
        node = pending.pop()
        if not marks[node]:
            marks[node] = 1
            pending += users[node]
    return marks


class _Parts:
    """Nodes that hang together, as disjoint sets."""

    def __init__(self, size: int) -> None:
        self.parents = list(range(size))

    def of(self, node: int) -> int:
        """The node that stands for those that this one hangs together with."""
        parents = self.parents
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    def join(self, one: int, other: int) -> None:
        one, other = self.of(one), self.of(other)
        if one != other:
            self.parents[max(one, other)] = min(one, other)
