"""Shardings, meshes and replica groups as XLA's text prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hloscope.ir.proto.escape import numbered
from hloscope.ir.proto.schema import enum_name

__all__ = ["replica_groups_text", "sharding_text"]

_KEYWORDS = {"REPLICATED", "MANUAL", "UNKNOWN", "UNREDUCED"}


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def sharding_text(sharding: Any, metadata_text: Callable[[Any], str]) -> str:
    """Text of an OpSharding.

    Args:
        sharding: The message.
        metadata_text: Prints one OpMetadata, without braces.

    Raises:
        ValueError: It names a mesh axis that the mesh does not have.
    """
    kind = enum_name("ShardingType", sharding.type)
    if sharding.HasField("named_sharding"):
        return _named(sharding.named_sharding, metadata_text)
    if kind == "TUPLE":
        members = [sharding_text(member, metadata_text) for member in sharding.tuple_shardings]
        return f"{{{numbered(members)}}}"
    if kind in _KEYWORDS:
        parts = [kind.lower()]
    elif kind == "MAXIMAL":
        parts = [f"maximal device={_list(sharding.tile_assignment_devices)}"]
    else:
        parts = [_tiles(sharding)]
        if sharding.replicate_on_last_tile_dim:
            parts.append("last_tile_dim_replicate")
        if sharding.last_tile_dims:
            names = (enum_name("ShardingType", kind).lower() for kind in sharding.last_tile_dims)
            parts.append(f"last_tile_dims={{{', '.join(names)}}}")
    if sharding.is_shard_group:
        group = enum_name("ShardGroupType", sharding.shard_group_type).lower()
        parts.append(f"shard_{group} {sharding.shard_group_id}")
    if sharding.metadata:
        texts = [metadata_text(metadata) for metadata in sharding.metadata]
        inside = texts[0] if len(texts) == 1 else ", ".join(f"{{{text}}}" for text in texts)
        parts.append(f"metadata={{{inside}}}")
    return f"{{{' '.join(parts)}}}"


def _tiles(sharding: Any) -> str:
    head = f"devices=[{_list(sharding.tile_assignment_dimensions)}]"
    if sharding.iota_reshape_dims:
        return head + "<=" + _iota(sharding.iota_reshape_dims, sharding.iota_transpose_perm)
    return head + _list(sharding.tile_assignment_devices)


def _iota(reshape: Any, permutation: Any) -> str:
    text = f"[{_list(reshape)}]"
    return f"{text}T({_list(permutation)})" if len(permutation) > 1 else text


def _named(sharding: Any, metadata_text: Callable[[Any], str]) -> str:
    mesh = sharding.mesh
    if not mesh.axes and len(mesh.device_ids) == 1:
        parts = [f"single_device[device_id={mesh.device_ids[0]}]"]
    else:
        parts = [_mesh(mesh)]
        groups = {
            "replicated": sharding.replicated_axes,
            "unreduced": sharding.unreduced_axes,
            "manual": sharding.manual_axes,
        }
        whole = [axis.name for axis in mesh.axes]
        word = _one_word(mesh, sharding, groups, whole)
        if word is not None:
            parts.append(word)
        else:
            dimensions = (_dimension(mesh, dim) for dim in sharding.dim_shardings)
            parts.append(f"[{', '.join(dimensions)}]")
            for key, axes in groups.items():
                if axes:
                    reduction = (
                        enum_name("ReductionOp", sharding.reduction_op).lower()
                        if key == "unreduced" and sharding.reduction_op
                        else ""
                    )
                    names = ", ".join(_axis(mesh, axis) for axis in axes)
                    parts.append(f"{key}={reduction}{{{names}}}")
    if sharding.metadata:
        texts = (f"{{{metadata_text(metadata)}}}" for metadata in sharding.metadata)
        parts.append(f"metadata={{{', '.join(texts)}}}")
    return f"{{{', '.join(parts)}}}"


def _one_word(mesh: Any, sharding: Any, groups: dict[str, Any], whole: list[str]) -> str | None:
    """``replicated``, ``unreduced`` or ``manual`` where that says everything."""
    if sharding.dim_shardings:
        return None
    used = {key: axes for key, axes in groups.items() if axes}
    if not used:
        return "replicated"
    if len(used) > 1 or "replicated" in used or sharding.reduction_op:
        return None
    key, axes = next(iter(used.items()))
    plain = not any(axis.HasField("sub_axis_info") for axis in axes)
    named = [mesh.axes[axis.mesh_axis_index].name for axis in axes if _known(mesh, axis)]
    return key if plain and named == whole else None


def _dimension(mesh: Any, dimension: Any) -> str:
    parts = [_axis(mesh, axis) for axis in dimension.axes]
    if not dimension.is_closed:
        parts.append("?")
    return f"{{{', '.join(parts)}}}"


def _known(mesh: Any, axis: Any) -> bool:
    return int(axis.mesh_axis_index) in range(len(mesh.axes))


def _axis(mesh: Any, axis: Any) -> str:
    if not _known(mesh, axis):
        raise ValueError(f"there is no mesh axis {axis.mesh_axis_index} among {len(mesh.axes)}")
    name = f"'{mesh.axes[axis.mesh_axis_index].name}'"
    if axis.HasField("sub_axis_info"):
        return f"{name}:({axis.sub_axis_info.pre_size}){axis.sub_axis_info.size}"
    return name


def _mesh(mesh: Any) -> str:
    axes = ",".join(f"'{axis.name}'={axis.size}" for axis in mesh.axes)
    text = f"mesh[{axes}]"
    if mesh.HasField("iota_transform"):
        iota = _iota(mesh.iota_transform.reshape_dims, mesh.iota_transform.transpose_perm)
        return f"{text}, device_ids=({iota})"
    if mesh.device_ids:
        return f"{text}, device_ids=({_list(mesh.device_ids)})"
    return text


def replica_groups_text(instruction: Any) -> str:
    """Replica groups of a collective, whichever of the five fields holds them.

    Raises:
        ValueError: They name a mesh axis that the mesh does not have.
    """
    if instruction.HasField("mesh_axes_replica_group_list"):
        groups = instruction.mesh_axes_replica_group_list
        axes = ",".join(_axis(groups.mesh, axis) for axis in groups.axes)
        return f"{_mesh(groups.mesh)} {{{axes}}}"
    devices = instruction.collective_device_list
    iota = (
        instruction.iota_collective_device_list
        if instruction.HasField("iota_collective_device_list")
        else devices.iota_replica_group_list
        if devices.HasField("iota_replica_group_list")  # jaxlib 0.4.36 nested it
        else None
    )
    if iota is not None:
        shape = f"[{iota.num_replica_groups},{iota.num_devices_per_group}]"
        return f"{shape}<={_iota(iota.iota_reshape_dims, iota.iota_transpose_perm)}"
    groups = devices.replica_groups or instruction.replica_groups
    return "{" + ",".join(f"{{{_list(group.replica_ids)}}}" for group in groups) + "}"
