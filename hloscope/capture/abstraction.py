"""Arguments as shapes laid over a target's devices. Runs in the worker.

Nothing of the arguments' real size is allocated: arrays give their shape,
dtype and sharding and are let go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.layout import Format
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from hloscope.errors import CaptureError

__all__ = ["abstract_arguments", "hlo_dtype"]


def abstract_arguments(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    static: Sequence[int],
    devices: Sequence[Any],
    *,
    mesh: Mesh | None,
    present: bool,
    scalars: bool,
    place: bool = True,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn a step's arguments into ``jax.ShapeDtypeStruct``, laid over ``devices``.

    A leaf that says how it is laid over the target's devices stays so. All
    others go to the one device or are replicated over all of them.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        static: Positions of static arguments, which stay as they are.
        devices: The target's devices.
        mesh: A mesh over them, if one was asked for.
        present: Whether the devices are attached (or simulated), so that one
            device needs no sharding at all and the program is the one that a
            plain run would compile.
        scalars: Whether Python numbers are turned as well. They stay where
            only the function knows which of its arguments are static.
        place: Whether leaves that do not say where they lie are laid over the
            devices; a function with ``in_shardings`` of its own does that itself.

    Raises:
        CaptureError: A leaf is laid over devices that are not the target's.
    """
    numbers = {n % len(args) for n in static} if args else set()
    dynamic = [arg for n, arg in enumerate(args) if n not in numbers]
    default = _default_sharding((dynamic, kwargs), devices, mesh, present) if place else None

    def abstract(path: Any, leaf: Any) -> Any:
        return _abstract(leaf, path, default, devices, scalars)

    moved = jax.tree_util.tree_map_with_path(
        abstract, [None if n in numbers else arg for n, arg in enumerate(args)]
    )
    filled = tuple(args[n] if n in numbers else arg for n, arg in enumerate(moved))
    return filled, jax.tree_util.tree_map_with_path(abstract, dict(kwargs))


def _default_sharding(
    tree: Any, devices: Sequence[Any], mesh: Mesh | None, present: bool
) -> Sharding | None:
    if len(devices) == 1:
        return None if present else SingleDeviceSharding(devices[0])
    if mesh is None:
        # Arguments may already share a mesh of the user's; the rest joins it,
        # since one program has one set of devices in one order.
        for leaf in jax.tree.leaves(tree):
            sharding = getattr(leaf, "sharding", None)
            if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
                mesh = sharding.mesh
                break
    if mesh is None:
        mesh = Mesh(np.array(devices, dtype=object), ("devices",))
    return NamedSharding(mesh, PartitionSpec())


def _abstract(
    leaf: Any, path: Any, default: Sharding | None, devices: Sequence[Any], scalars: bool
) -> Any:
    if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
        return jax.ShapeDtypeStruct(
            leaf.shape,
            leaf.dtype,
            sharding=_placed(leaf, path, default, devices),
            weak_type=bool(getattr(leaf, "weak_type", False)),
        )
    if isinstance(leaf, (np.ndarray, np.generic)):
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=default)
    if scalars and isinstance(leaf, (bool, int, float, complex)):
        shape = jax.eval_shape(lambda value: value, leaf)
        return jax.ShapeDtypeStruct(
            shape.shape, shape.dtype, sharding=default, weak_type=shape.weak_type
        )
    # Not an array: jit says what is wrong with it better than this could.
    return leaf


def _placed(
    leaf: Any, path: Any, default: Sharding | None, devices: Sequence[Any]
) -> Sharding | Format | None:
    """Where and how a leaf lies: its own sharding, memory kind and layout where it says."""
    sharding = _kept_sharding(leaf, path, devices) or default
    kind = _memory_kind(leaf)
    # A layout that was asked for; an array of this machine has one that nobody chose.
    layout = (
        getattr(getattr(leaf, "format", None), "layout", None)
        if isinstance(leaf, jax.ShapeDtypeStruct)
        else None
    )
    if sharding is None and (kind is not None or layout is not None):
        sharding = SingleDeviceSharding(devices[0])
    if kind is not None and sharding is not None:
        sharding = sharding.with_memory_kind(kind)
    return sharding if layout is None else Format(layout, sharding)


def _memory_kind(leaf: Any) -> str | None:
    """The memory that a leaf on one device asks for, where that is not the device's default."""
    sharding = leaf.sharding
    kind = getattr(sharding, "memory_kind", None)
    if kind is None or len(sharding.device_set) != 1:
        return None
    try:
        (device,) = sharding.device_set
        usual = device.default_memory().kind
    except (AttributeError, jax.errors.JaxRuntimeError):
        return None
    return str(kind) if kind != usual else None


def _kept_sharding(leaf: Any, path: Any, devices: Sequence[Any]) -> Sharding | None:
    sharding = leaf.sharding
    if sharding is None:
        return None
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        return sharding
    own = set(sharding.device_set)
    if own <= set(devices) and isinstance(sharding, NamedSharding):
        return sharding
    if len(own) == 1:
        # Where an array happens to lie on this machine says nothing of the target.
        return None
    raise CaptureError(
        f"the argument {jax.tree_util.keystr(path)} is laid over devices that are not the target's",
        phase="trace",
        detail=f"sharding: {sharding}",
        hint="Make the step a function that takes `devices` and build its mesh from them.",
    )


_HLO_DTYPES = {
    "bool": "pred",
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
    "float0": "pred",
}


def hlo_dtype(dtype: Any) -> str:
    """HLO's name of a numpy or JAX dtype, for example ``bf16`` or ``f8e4m3fn``."""
    name = str(np.dtype(dtype).name)
    if name in _HLO_DTYPES:
        return _HLO_DTYPES[name]
    for prefix, short in (("float", "f"), ("uint", "u"), ("int", "s")):
        if name.startswith(prefix):
            # float8_e4m3fn is f8e4m3fn, float4_e2m1fn is f4e2m1fn.
            return short + name.removeprefix(prefix).replace("_", "")
    return name
