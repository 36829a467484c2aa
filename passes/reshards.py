"""Exchanges that XLA's partitioner put in for a change of sharding that nobody asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hloscope.ir import Instruction, Shape
from hloscope.ir.compiler_log import FullRematerialization
from hloscope.ir.signature import Role
from hloscope.passes.collectives import CollectiveKind
from hloscope.passes.exchanges import Exchange, Exchanges
from hloscope.passes.origins import moves
from hloscope.passes.requested_shardings import RequestedShardings
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import CompilerSetup

__all__ = ["Reshard", "Reshards", "find_reshards"]

_KINDS = frozenset({CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL, CollectiveKind.PERMUTE})
# Primitives by which a program exchanges data itself, and those that ask for a sharding.
_BY_HAND = frozenset(
    """
    all_gather all_gather_invariant all_to_all collective_permute device_put mesh_cast pbroadcast
    pgather ppermute psum_scatter ragged_all_to_all reduce_scatter reshard sharding_constraint
    """.split()  # noqa: SIM905
)
# A region of one device's own code, and a rotation along the devices of an axis.
_BY_HAND_WITHIN = frozenset({"shard_map", "jit(_roll_static)", "jit(_roll_dynamic)"})
_WINDOWED = "windowed_dot_general"
_SLICES = frozenset({"dynamic-slice", "slice"})
_MOST_STEPS = 20


@dataclass(frozen=True, slots=True)
class Reshard:
    """A value whose sharding the compiler changed.

    Attributes:
        exchange: How it did.
        primitive: The operation, in JAX's words, that the exchange is named after.
        before: What one device sends, for example ``f32[128,256]``.
        after: What it holds then.
        warning: The partitioner's own warning that it gathers the value whole.
        sliced: Whether each device keeps only a slice of what is gathered.
    """

    exchange: Exchange
    primitive: str
    before: str
    after: str
    warning: FullRematerialization | None
    sliced: bool

    @property
    def whole(self) -> bool:
        """Whether the value was made whole on every device only to be split again."""
        return self.warning is not None or self.sliced


@dataclass(frozen=True, slots=True)
class Reshards:
    """What nobody asked for.

    Attributes:
        rows: In the order of the exchanges.
        warnings: Warnings of the partitioner that belong to none of them.
        constraints_known: Whether the program's sharding constraints are at hand;
            of a dump only names tell of them.
        listened: Whether what the partitioner warned of is known.
    """

    rows: Sequence[Reshard]
    warnings: Sequence[FullRematerialization]
    constraints_known: bool
    listened: bool


@analysis
def find_reshards(
    exchanges: Exchanges, requested: RequestedShardings | None, setup: CompilerSetup | None
) -> Reshards:
    """Take from all exchanges those that change a sharding and that nothing asks for.

    Left out are sums; what ``shard_map`` and its collectives exchange by hand; a
    parameter that is gathered for use or updated in shards; what yields the
    sharding that a constraint asks for, or sends such a value; loops that turn a
    product's operands around the devices; and permutes of a part of a value, by
    which an operation reaches its neighbours' elements. What the partitioner
    warns of is in, also at a constraint: that asks for the sharding, not for the
    whole value on every device.
    """
    heard = setup.full_rematerializations if setup is not None else None
    left = dict.fromkeys(heard or ())
    asked = [_is_asked(row, requested) for row in exchanges.rows]
    windowed = {row.named.op_name for row in exchanges.rows if _is_windowed(row)}
    # One change of sharding may take several exchanges of one name: gather, then permute.
    names = windowed | {
        row.named.op_name for row, is_asked in zip(exchanges.rows, asked, strict=True) if is_asked
    }
    rows = []
    for row, is_asked in zip(exchanges.rows, asked, strict=True):
        if not _changes_sharding(row):
            continue
        warning = _warning(row, heard or ())
        if warning is None and (is_asked or row.named.op_name in names or _is_by_hand(row)):
            continue
        if warning is not None:
            left.pop(warning, None)
        instruction = row.collective.instruction
        sliced = row.collective.kind is CollectiveKind.ALL_GATHER and _is_sliced(instruction)
        rows.append(
            Reshard(
                row,
                row.named.op_name.split(";")[0].rpartition("/")[2],
                _in_words(value.shape for value in instruction.operands),
                _in_words(_end(instruction).shape.leaves()),
                warning,
                sliced,
            )
        )
    return Reshards(rows, tuple(left), requested is not None, heard is not None)


def _changes_sharding(row: Exchange) -> bool:
    """Whether it moves a whole value, and not a parameter on its way to where it is used."""
    kind = row.collective.kind
    if kind not in _KINDS or row.collective.group_size == 1:
        return False
    if kind is CollectiveKind.PERMUTE:
        return not _is_part(row.collective.instruction)
    if kind is CollectiveKind.ALL_TO_ALL:
        return True
    if row.updated or any(leaf.role is not Role.BATCH for leaf in row.moved):
        return False
    return not any(leaf.role in (Role.STATE, Role.FROZEN) for leaf in row.sources)


def _is_windowed(row: Exchange) -> bool:
    """Whether it turns operands of a product around the devices while the product is computed.

    XLA writes such a loop in place of a gather or a sum (collective matmul), and
    permutes around it under its name.
    """
    computation = row.collective.launch.computation
    return _WINDOWED in computation.name or any(
        "windowed_einsum_loop_config" in caller.backend_config
        for caller in computation.callers
        if caller.opcode == "while"
    )


def _is_by_hand(row: Exchange) -> bool:
    # Without a name nothing tells who put it in.
    if not row.named.op_name:
        return True
    for name in row.named.op_name.split(";"):
        parts = name.split("/")
        if parts[-1] in _BY_HAND or not _BY_HAND_WITHIN.isdisjoint(parts):
            return True
    return False


def _is_asked(row: Exchange, requested: RequestedShardings | None) -> bool:
    """Whether a constraint asks for what it gives, or for what it sends.

    A program that says how the operand of a product lies knows that the product
    may have to gather it.
    """
    if requested is None or not _changes_sharding(row):
        return False
    instruction = row.collective.instruction
    if any(requested.asks_for(row.named.op_name, n) for n in _elements_after(instruction)):
        return True
    sizes = [operand.shape.num_elements for operand in instruction.operands]
    return any(
        requested.asks_for(name, n)
        for name in {_made_by(operand) for operand in instruction.operands} - {""}
        for n in {*sizes, sum(sizes)}
    )


def _made_by(value: Instruction) -> str:
    """The op_name of what made a value; of a fusion that of its root tells more."""
    for _ in range(_MOST_STEPS):
        if value.op_name and not moves(value):
            break
        if value.operands and (moves(value) or value.opcode in _SLICES):
            value = value.operands[0]
        else:
            break
    return value.op_name


def _warning(
    row: Exchange, warnings: Sequence[FullRematerialization]
) -> FullRematerialization | None:
    """The partitioner names the exchange after the value or after what takes it."""
    if row.collective.kind is not CollectiveKind.ALL_GATHER:
        return None
    names = {row.named.op_name, *(value.op_name for value in row.collective.instruction.operands)}
    return next((one for one in warnings if one.op_name and one.op_name in names), None)


def _end(exchange: Instruction) -> Instruction:
    if exchange.opcode.endswith("-start"):
        return next((user for user in exchange.users if user.opcode.endswith("-done")), exchange)
    return exchange


def _elements_after(exchange: Instruction) -> set[int]:
    """Elements of each result, and of all together where an all-to-all gives the parts."""
    sizes = [leaf.num_elements for leaf in _end(exchange).shape.leaves()]
    return {*sizes, sum(sizes)} if exchange.opcode.startswith("all-to-all") else set(sizes)


def _in_words(shapes: Iterable[Shape]) -> str:
    """One shape, several of one, or the first of different ones."""
    texts = [str(shape.without_layout()) for shape in shapes]
    first = next(iter(texts), "?")
    if len(texts) == 1:
        return first
    return f"{len(texts)} x {first}" if len(set(texts)) == 1 else f"{first}, ..."


def _is_part(permute: Instruction) -> bool:
    """Whether a permute sends a slice of a value: what a neighbour needs at its edge."""
    value = permute.operands[0] if permute.operands else permute
    for _ in range(_MOST_STEPS):
        if value.opcode in _SLICES:
            return True
        if value.opcode in ("fusion", "call") and value.called:
            value = value.called[0].root
        elif value.operands and moves(value):
            value = value.operands[0]
        elif value.opcode == "parameter" and len(value.computation.callers) == 1:
            caller, number = value.computation.callers[0], value.parameter_number or 0
            if caller.opcode not in ("fusion", "call") or number >= len(caller.operands):
                return False
            value = caller.operands[number]
        else:
            return False
    return False


def _is_sliced(gather: Instruction) -> bool:
    """Whether every use of what is gathered keeps a slice of it, one that differs by device."""
    pending, slices, seen = [_end(gather)], 0, set()
    while pending:
        value = pending.pop()
        if value.is_root:
            return False
        for user in value.users:
            if user in seen:
                continue
            seen.add(user)
            if user.opcode == "dynamic-slice" and user.operands[0] is value:
                slices += 1
            elif user.opcode == "fusion" and user.called:
                inside = zip(user.operands, user.called[0].parameters, strict=False)
                pending += [parameter for operand, parameter in inside if operand is value]
            elif user.opcode in ("bitcast", "copy", "get-tuple-element", "reshape", "transpose"):
                pending.append(user)
            else:
                return False
    return slices > 0
