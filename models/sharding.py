"""Where arrays live on a mesh of the axes ``data``, ``fsdp`` and ``expert``.

Parameters and everything shaped like them (optimizer moments) are split over
``fsdp``, and the matrices of experts over ``expert`` besides; the batch is split
over all axes together. A leaf's place depends on its path and shape alone, so a
state that comes out of a step has the place of the one that went in, and
donation can alias every leaf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from hloscope.errors import UsageError

__all__ = [
    "BATCH_AXES",
    "Constrain",
    "batch_constraint",
    "batch_spec",
    "lay_mesh",
    "parameter_spec",
    "place_batch",
    "place_replicated",
    "place_state",
    "unconstrained",
]

BATCH_AXES = ("data", "fsdp", "expert")

# Under this name a module keeps one matrix an expert: ``[..., experts, in, out]``.
EXPERTS = "experts"

# 16 KiB of float32. Splitting less saves no memory worth a collective's latency.
SMALLEST_SPLIT = 4096

Constrain = Callable[[jax.Array], jax.Array]
"""Pins an activation with a leading batch dimension to the batch's sharding."""


def lay_mesh(
    mesh: Mapping[str, int] | Mesh | AbstractMesh, devices: Sequence[jax.Device] | None
) -> Mesh | AbstractMesh:
    """Lay axis sizes over devices; a JAX mesh is returned as it is.

    Args:
        mesh: Axis name to size, in order, or a mesh.
        devices: What to lay it over; JAX's default devices where ``None``.

    Raises:
        UsageError: When the sizes' product is not the number of devices.
    """
    if not isinstance(mesh, Mapping):
        return mesh
    devices = jax.devices() if devices is None else devices
    sizes = tuple(mesh.values())
    needed = math.prod(sizes)
    if min(sizes, default=0) < 1 or needed != len(devices):
        asked = ",".join(f"{axis}={size}" for axis, size in mesh.items())
        product = " x ".join(str(size) for size in sizes)
        raise UsageError(
            f"{product} = {needed} devices asked for, the target has {len(devices)}",
            place=f"--mesh {asked}",
            hint=f"Choose axis sizes whose product is {len(devices)}, or a target of that size.",
        )
    return jax.make_mesh(
        sizes, tuple(mesh), axis_types=(AxisType.Auto,) * len(sizes), devices=devices
    )


def parameter_spec(
    shape: tuple[int, ...], mesh: Mesh | AbstractMesh, *, experts: int | None = None
) -> PartitionSpec:
    """Split the largest dimension that ``fsdp`` divides; leave small leaves whole.

    Of equal dimensions the last is split. A leaf with no divisible dimension,
    or a mesh without ``fsdp``, is not split over it.

    Args:
        shape: The leaf's.
        mesh: Its axes.
        experts: The dimension that counts experts, which is split over ``expert``
            where that axis divides it, and over nothing else.
    """
    size, split = mesh.shape.get("fsdp", 1), mesh.shape.get("expert", 1)
    places: dict[int, str] = {}
    if experts is not None and split > 1 and shape[experts] % split == 0:
        places[experts] = "expert"
    divisible = [n for n, extent in enumerate(shape) if extent % size == 0 and n not in places]
    if size > 1 and math.prod(shape) >= SMALLEST_SPLIT and divisible:
        places[max(divisible, key=lambda axis: (shape[axis], axis))] = "fsdp"
    if not places:
        return PartitionSpec()
    return PartitionSpec(*(places.get(axis) for axis in range(len(shape))))


def batch_spec(mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """Split the leading dimension over every batch axis that the mesh has."""
    return PartitionSpec(tuple(axis for axis in BATCH_AXES if axis in mesh.shape))


def place_state(state: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A tree like ``state`` of the sharding of each leaf."""

    def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        held = any(getattr(key, "key", None) == EXPERTS for key in path) and len(leaf.shape) > 2
        experts = len(leaf.shape) - 3 if held else None
        return NamedSharding(mesh, parameter_spec(leaf.shape, mesh, experts=experts))

    return jax.tree_util.tree_map_with_path(place, state)


def place_batch(batch: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A tree like ``batch`` of shardings, each leaf split along its first dimension.

    Raises:
        UsageError: When the devices do not divide the batch.
    """
    parts = math.prod(mesh.shape.get(axis, 1) for axis in BATCH_AXES)
    for leaf in jax.tree.leaves(batch):
        if leaf.shape[0] % parts:
            raise UsageError(
                f"a batch of {leaf.shape[0]} cannot be split over {parts} devices",
                place="--mesh",
                hint=f"Set a batch that {parts} divides: --set batch={parts}.",
            )
    return jax.tree.map(lambda _: NamedSharding(mesh, batch_spec(mesh)), batch)


def place_replicated(tree: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A tree like ``tree`` of shardings that keep every leaf whole on each device."""
    return jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec()), tree)


def batch_constraint(mesh: Mesh | AbstractMesh) -> Constrain:
    """Pin activations to the batch's sharding.

    Without the pin the partitioner may follow the parameters instead, and
    split activations by channel over the axis that should only shard storage.
    """
    sharding = NamedSharding(mesh, batch_spec(mesh))

    def constrain(activation: jax.Array) -> jax.Array:
        pinned: jax.Array = jax.lax.with_sharding_constraint(activation, sharding)
        return pinned

    return constrain


def unconstrained(activation: jax.Array) -> jax.Array:
    """The constraint of a step that runs on one device: none."""
    return activation
