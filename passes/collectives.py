"""Every exchange between devices, once, with what it sends.

One exchange may be printed several times: as the start and the end of an
asynchronous pair, and on TPUs in a fusion that starts it, in every fusion that
runs beside it, and in the one that waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hloscope.errors import InputError, Unavailable
from hloscope.ir import Instruction, Module
from hloscope.ir.attributes import parse_integers
from hloscope.ir.scan import split_list
from hloscope.passes.execution import Execution
from hloscope.passes.multiplicity import Times
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = [
    "RING",
    "RING_LOOPS",
    "SUMS",
    "Collective",
    "CollectiveKind",
    "Collectives",
    "find_collectives",
    "gathered",
    "is_started_by_fusion",
    "only_waits",
    "wire_bytes",
]


RING = "ring algorithm"
RING_LOOPS = "ring algorithm, each branch taken, loops of unknown length run once"
"""Models of the bytes that are sent: of one run, and of all where runs are not known."""


class CollectiveKind(StrEnum):
    """What devices exchange, in XLA's words."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    RAGGED_ALL_TO_ALL = "ragged-all-to-all"
    PERMUTE = "collective-permute"
    BROADCAST = "collective-broadcast"
    SEND = "send"
    RECEIVE = "recv"


SUMS = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER})
"""Kinds that reduce what devices have; the others move it."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One exchange.

    Attributes:
        instruction: The collective itself, which may stand in a fusion.
        launch: What the runtime launches for it: itself, or that fusion.
        kind: What it does. A fusion of an all-reduce with the slice that each
            device keeps is a reduce-scatter.
        group_size: Devices that exchange with each other, of the largest group;
            2 for a permute and a send; ``None`` where it cannot be told.
        payload_bytes: The whole of what is exchanged, as one device sees it:
            operands, for an all-gather results. ``None`` for sizes without bound.
        wire_bytes: What one device sends, see :func:`wire_bytes`; an upper bound
            where ``basis`` is bounded, ``None`` where it cannot be told.
        basis: How ``wire_bytes`` is known: modelled by the ring.
        times: Runs per execution of the program.
        asynchronous: Whether other work can run meanwhile.
        note: Why something is unknown, or only bounded.
    """

    instruction: Instruction
    launch: Instruction
    kind: CollectiveKind
    group_size: int | None
    payload_bytes: int | None
    wire_bytes: int | None
    basis: Basis
    times: Times
    asynchronous: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Collectives:
    """The exchanges of a program.

    Attributes:
        rows: Each once, callees' first.
        repeats: Instructions that print an exchange of ``rows`` again.
        by_launch: The exchanges of each launch.
    """

    rows: Sequence[Collective]
    repeats: frozenset[Instruction]
    by_launch: Mapping[Instruction, Sequence[Collective]]


def wire_bytes(kind: CollectiveKind, payload: int, group_size: int) -> int:
    """Bytes that one device sends, by the ring algorithm, rounded up.

    With ``S`` bytes and ``n`` devices: an all-reduce sends ``2 S (n-1)/n``; an
    all-gather (of ``S`` bytes when gathered), a reduce-scatter and an
    all-to-all send ``S (n-1)/n``; a permute, a broadcast and a send send ``S``.
    No algorithm that moves data between pairs of devices sends less, except
    reductions inside a switch. Source: Patarasuk and Yuan, Bandwidth optimal
    all-reduce algorithms for clusters of workstations, 2009; nccl-tests,
    PERFORMANCE.md, bus bandwidth.

    Args:
        kind: What is exchanged.
        payload: ``S`` in bytes.
        group_size: ``n``; a group of one sends nothing.
    """
    if group_size <= 1 or kind is CollectiveKind.RECEIVE:
        return 0
    if kind in (CollectiveKind.PERMUTE, CollectiveKind.BROADCAST, CollectiveKind.SEND):
        return payload
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    return -(-rounds * payload * (group_size - 1) // group_size)


_KINDS = {
    spelling: kind
    for kind in CollectiveKind
    for spelling in (kind.value, f"{kind.value}-start")
    if spelling not in ("send-start", "recv-start")
}
# Without use_global_device_ids these take their ids for partitions, see XLA's
# GetCollectiveOpGroupMode; the others then mean replicas, each with all partitions.
_OF_PARTITIONS = frozenset(
    {
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.RAGGED_ALL_TO_ALL,
        CollectiveKind.PERMUTE,
        CollectiveKind.BROADCAST,
    }
)


@analysis
def find_collectives(module: Module, execution: Execution) -> Collectives:
    """Find the exchanges between devices, also those that stand in fusions; linear."""
    found = list(_launched(module, execution))
    started = {
        _chain(instruction)
        for instruction, _ in found
        if _feeds(instruction, "AsyncCollectiveStart")
    }
    rows: list[Collective] = []
    repeats: set[Instruction] = set()
    by_launch: dict[Instruction, list[Collective]] = {}
    for instruction, launch in found:
        if _in_pieces(instruction):
            chain = _chain(instruction)
            if not _feeds(instruction, "AsyncCollectiveStart") and chain in started:
                repeats.add(instruction)
                continue
            started.add(chain)
        row = _row(instruction, launch, module, execution)
        rows.append(row)
        by_launch.setdefault(launch, []).append(row)
    return Collectives(rows, frozenset(repeats), by_launch)


def _launched(module: Module, execution: Execution) -> Iterator[tuple[Instruction, Instruction]]:
    for computation in module.computations.values():
        for instruction in computation.instructions:
            if instruction.opcode not in _KINDS or _to_host(instruction):
                continue
            launch = execution.launch_of(instruction)
            if launch is not None:
                yield instruction, launch


def _to_host(instruction: Instruction) -> bool:
    transfer = instruction.opcode in ("send", "recv")
    return transfer and instruction.attributes.get("is_host_transfer") == "true"


def _in_pieces(instruction: Instruction) -> bool:
    """Whether TPU's asynchronous fusion spread the exchange over several fusions."""
    if "async_collective_fusion_config" in instruction.backend_config:
        return True
    return _feeds(instruction, "AsyncCollectiveStart") or _feeds(instruction, "AsyncCollectiveDone")


def _feeds(instruction: Instruction, target: str) -> bool:
    return any(
        user.opcode == "custom-call" and user.custom_call_target == target
        for user in instruction.users
    )


def _chain(instruction: Instruction) -> tuple[str, str]:
    """What the pieces of one exchange share; channels alone are not unique."""
    return (
        instruction.attributes.get("channel_id", ""),
        instruction.frontend_attributes.get("chain_id", ""),
    )


def _row(
    instruction: Instruction, launch: Instruction, module: Module, execution: Execution
) -> Collective:
    kind = _KINDS[instruction.opcode]
    fused = launch is not instruction
    if kind is CollectiveKind.ALL_REDUCE and fused and _keeps_a_slice(instruction):
        kind = CollectiveKind.REDUCE_SCATTER
    note = ""
    size = payload = wire = None
    basis = Basis.UNKNOWN
    try:
        size = _group_size(instruction, kind, module)
        payload = _payload(instruction, kind)
    except (Unavailable, InputError) as error:
        note = error.message
    if size is not None and payload is not None:
        wire = wire_bytes(kind, payload, size)
        basis = Basis.MODELLED
        if kind is CollectiveKind.RAGGED_ALL_TO_ALL:
            basis, note = Basis.BOUNDED, "how much is sent is known at run time only"
    return Collective(
        instruction,
        launch,
        kind,
        size,
        payload,
        wire,
        basis,
        execution.times[launch.computation],
        not _is_waited_for(instruction)
        and (execution.runs_beside(launch) or _feeds(instruction, "AsyncCollectiveStart")),
        note,
    )


def _is_waited_for(instruction: Instruction) -> bool:
    """Whether XLA:GPU runs it on the stream of all other work, though it may print a start.

    Of a collective that an ``async-start`` calls the start may say so.
    """
    for value in (instruction, *instruction.computation.callers):
        config = value.backend_config.get("collective_backend_config")
        if isinstance(config, dict) and config.get("is_sync") is True:
            return True
    return False


def _payload(instruction: Instruction, kind: CollectiveKind) -> int:
    operands = instruction.operands
    if kind in (CollectiveKind.RAGGED_ALL_TO_ALL, CollectiveKind.SEND):
        operands = operands[:1]
    if kind is CollectiveKind.RECEIVE:
        return instruction.shape.elements[0].bytes if instruction.shape.elements else 0
    if kind is CollectiveKind.ALL_GATHER:
        return gathered(instruction)
    return sum(operand.shape.bytes for operand in operands)


def gathered(gather: Instruction) -> int:
    """Bytes of an all-gather's results; a start also returns its operands."""
    shape = gather.shape
    if gather.opcode.endswith("-start") and len(shape.elements) > 1:
        shape = shape.elements[1]
    return shape.bytes


def _group_size(instruction: Instruction, kind: CollectiveKind, module: Module) -> int:
    """Devices of the largest group.

    Raises:
        InputError: Its groups cannot be read.
    """
    if kind in (CollectiveKind.SEND, CollectiveKind.RECEIVE):
        return 2
    if kind is CollectiveKind.PERMUTE:
        return 2 if _moves_between_devices(instruction) else 1
    channel = "channel_id" in instruction.attributes
    by_device = instruction.attributes.get("use_global_device_ids") == "true"
    groups = instruction.replica_groups or ()
    listed = max((len(group) for group in groups), default=0)
    if by_device:
        return listed or module.replica_count * module.num_partitions
    if not channel:
        return listed or module.replica_count
    if kind in _OF_PARTITIONS:
        return listed or module.num_partitions
    return (listed or module.replica_count) * module.num_partitions


def _moves_between_devices(permute: Instruction) -> bool:
    text = permute.attributes.get("source_target_pairs", "{}").strip()
    try:
        pairs = [parse_integers(pair) for pair in split_list(text[1:-1])]
    except ValueError:
        raise permute.error(f"cannot read source_target_pairs={text[:60]}") from None
    return any(len(set(pair)) > 1 for pair in pairs)


_PASSED_ON = frozenset({"bitcast", "copy", "get-tuple-element", "reshape", "pad"})


def _keeps_a_slice(all_reduce: Instruction) -> bool:
    """Whether each device keeps a slice only, as TPU compilers write a reduce-scatter.

    Such a fusion is one exchange, although an all-reduce stands in it.
    """
    pending, slices = [all_reduce], 0
    while pending:
        value = pending.pop()
        if value.is_root:
            return False
        for user in value.users:
            if user.opcode in ("dynamic-slice", "slice") and user.operands[0] is value:
                slices += 1
            elif user.opcode in _PASSED_ON:
                pending.append(user)
            else:
                return False
    return slices > 0


def is_started_by_fusion(fusion: Instruction) -> bool:
    """Whether a fusion does nothing but start an exchange that others continue."""
    return _is_rooted_by(fusion, "AsyncCollectiveStart")


def only_waits(fusion: Instruction) -> bool:
    """Whether a fusion does nothing but wait for an exchange that others did."""
    return _is_rooted_by(fusion, "AsyncCollectiveDone")


def _is_rooted_by(fusion: Instruction, target: str) -> bool:
    if fusion.opcode != "fusion" or not fusion.called:
        return False
    root = fusion.called[0].root
    return root.opcode == "custom-call" and root.custom_call_target == target
