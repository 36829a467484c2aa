"""Which leaves of the state several devices hold alike, though they split the batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hloscope.errors import Unavailable
from hloscope.ir import Module
from hloscope.ir.signature import InputLeaf, Role, Signature
from hloscope.passes.entry_slots import Slot, memory_space, parameter_slots
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import MeshAxes

__all__ = ["ReplicatedLeaf", "Replication", "find_replication"]


@dataclass(frozen=True, slots=True)
class ReplicatedLeaf:
    """One leaf of the state that devices with different parts of the batch hold alike.

    Attributes:
        leaf: The leaf.
        bytes: Bytes of it on one device.
        copies: Devices that hold the same part of it and could share it.
        axes: The mesh axes that these devices lie along; empty where the mesh is unknown.
        whole: Whether every device holds all of it.
    """

    leaf: InputLeaf
    bytes: int
    copies: int
    axes: tuple[str, ...]
    whole: bool

    @property
    def sharded_bytes(self) -> int:
        """Bytes that one device would hold if these devices shared it, rounded up."""
        return -(-self.bytes // self.copies)


@dataclass(frozen=True, slots=True)
class Replication:
    """The state as devices hold it.

    Attributes:
        leaves: What is held alike, in the signature's order.
        state_bytes: Bytes of the whole state on one device.
        devices: Devices that the program runs on.
    """

    leaves: Sequence[ReplicatedLeaf]
    state_bytes: int
    devices: int


@analysis
def find_replication(module: Module, signature: Signature, mesh: MeshAxes | None) -> Replication:
    """Compare how the state is laid over the devices with how the batch is.

    Of a captured step that is told by sizes, global and on one device, and by the
    axes that the partition specs name; of a bare module by the shardings that its
    parameters print. A leaf counts where it could be split further: over all the
    devices that hold it alike, along one of its dimensions.

    Raises:
        Unavailable: Of no leaf of the state, or of the batch, it is known how it is
            laid out; or the devices run replicas of a program that is not partitioned.
    """
    devices = module.num_partitions * module.replica_count
    if devices <= 1:
        return Replication((), 0, devices)
    if module.num_partitions <= 1:
        raise Unavailable("the program is not partitioned: its devices run replicas")
    slots = parameter_slots(module)
    captured = signature.basis == "captured"
    laid: dict[Role, list[tuple[InputLeaf, Slot, int]]] = {Role.STATE: [], Role.BATCH: []}
    for number, leaf in signature.by_parameter().items():
        if leaf.role not in laid or number >= len(slots):
            continue
        slot = slots[number]
        shards = (
            _shards_by_size(leaf, slot)
            if captured
            else _shards_by_text(leaf.sharding, module.num_partitions)
        )
        if shards is not None and not memory_space(slot.shape):
            laid[leaf.role].append((leaf, slot, shards))
    state, batch = laid[Role.STATE], laid[Role.BATCH]
    if not state:
        raise Unavailable("of no leaf of the state is it known how it lies over the devices")
    if not batch:
        raise Unavailable("of no leaf of the batch is it known how it lies over the devices")
    by_axes = _by_axes(state, batch, mesh)
    split = max(shards for _, _, shards in batch)
    found = []
    for leaf, slot, shards in state:
        if by_axes is not None and mesh is not None:
            free = tuple(axis for axis in by_axes if axis not in (_axes(leaf) or ()))
            copies = prod(mesh.sizes[axis] for axis in free)
        else:
            # With a part of the batch on every device any copy is one too many.
            free = ()
            copies = devices // shards if split == devices else 1
        if copies > 1 and _is_divisible(slot, copies):
            found.append(ReplicatedLeaf(leaf, slot.shape.bytes, copies, free, shards == 1))
    return Replication(found, sum(slot.shape.bytes for _, slot, _ in state), devices)


_Laid = Sequence[tuple[InputLeaf, Slot, int]]


def _by_axes(state: _Laid, batch: _Laid, mesh: MeshAxes | None) -> tuple[str, ...] | None:
    """The axes that the batch is split over; ``None`` where a leaf does not name its axes."""
    if mesh is None:
        return None
    named: set[str] = set()
    for leaf, _, shards in (*state, *batch):
        axes = _axes(leaf)
        # A spec that names no axis of a leaf that is split does not say enough.
        if axes is None or prod(mesh.sizes.get(axis, 1) for axis in axes) != shards:
            return None
        if leaf.role is Role.BATCH:
            named |= set(axes)
    return tuple(axis for axis, size in mesh.sizes.items() if axis in named and size > 1)


_SPEC = re.compile(r"P(?:artitionSpec)?\((.*)\)", re.DOTALL)
_AXIS = re.compile(r"'((?:[^'\\]|\\.)*)'")


def _axes(leaf: InputLeaf) -> tuple[str, ...] | None:
    """The mesh axes that a partition spec names; ``None`` for another kind of sharding."""
    spec = _SPEC.fullmatch(leaf.sharding or "")
    if spec is None:
        return None
    # Axes over which values are still to be summed split nothing.
    return tuple(_AXIS.findall(re.split(r"\b(?:unreduced|reduced)=", spec[1])[0]))


def _shards_by_size(leaf: InputLeaf, slot: Slot) -> int | None:
    """Parts that the leaf is split into, by its sizes on all devices and on one."""
    whole, local = prod(leaf.dimensions), prod(slot.shape.dimensions)
    if len(leaf.dimensions) != len(slot.shape.dimensions) or not whole or not local:
        return None
    # A dimension that the devices do not divide is padded.
    return prod(
        -(-size // part) for size, part in zip(leaf.dimensions, slot.shape.dimensions, strict=True)
    )


_TILES = re.compile(r"\{devices=\[([\d,]+)\](.*)\}", re.DOTALL)


def _shards_by_text(sharding: str | None, devices: int) -> int | None:
    """The same by a parameter's ``sharding`` in HLO; ``None`` where that says something else."""
    text = (sharding or "").strip()
    if text == "{replicated}":
        return 1
    tiles = _TILES.fullmatch(text)
    if tiles is None:
        return None
    sizes = [int(size) for size in tiles[1].split(",")]
    if prod(sizes) != devices or "last_tile_dims" in tiles[2]:
        return None
    if "last_tile_dim_replicate" in tiles[2]:
        sizes = sizes[:-1]
    return prod(sizes)


def _is_divisible(slot: Slot, copies: int) -> bool:
    return any(size % copies == 0 for size in slot.shape.dimensions if size)
