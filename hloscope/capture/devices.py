"""The devices of a target, present or not. Runs in the worker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils, topologies
from jax.sharding import Mesh

from hloscope.chips import Chip, ChipKind, Target
from hloscope.errors import TargetError

__all__ = ["device_mesh", "target_devices"]


def target_devices(target: Target) -> list[Any]:
    """The JAX devices to compile for.

    Those of a chip that is not attached can be compiled for and nothing else.

    Raises:
        TargetError: The plug-in does not give the devices.
    """
    if target.chip is None:
        return list(jax.devices())
    if target.chip.kind is ChipKind.CPU:
        devices = list(jax.devices("cpu"))
    else:
        devices = _absent_devices(target, target.chip)
    wanted = target.devices or 1
    if len(devices) < wanted:
        raise TargetError(
            f"{target.text} needs {wanted} devices, and JAX gives {len(devices)}",
            place=f"target {target.text}",
            hint="Check XLA_FLAGS and JAX_NUM_CPU_DEVICES in the environment.",
        )
    return devices[:wanted]


def _absent_devices(target: Target, chip: Chip) -> list[Any]:
    try:
        if chip.gpu is not None:
            description = topologies.get_topology_desc(
                platform="cuda",
                topology_name=chip.name,
                target_config=chip.gpu.target_config(),
                topology=f"1x1x{target.devices}",
            )
        else:
            # Hosts hold 2x2 chips; a topology smaller than that is one host of its own.
            bounds = tuple(2 if d % 2 == 0 and axis < 2 else 1 for axis, d in _axes(target))
            options: dict[str, Any] = {"chips_per_host_bounds": bounds}
            if chip.megacore:
                options["chip_config_name"] = "megacore"
            description = topologies.get_topology_desc(
                platform="tpu", topology_name=target.topology_name, **options
            )
    except (RuntimeError, NotImplementedError, ValueError) as error:
        raise TargetError(
            f"the plug-in does not give a topology for {target.text}",
            place=f"target {target.text}",
            detail=_first_lines(str(error)),
            hint="Try another device count or topology, or `hloscope targets install "
            f"{chip.name}` if the plug-in may be damaged.",
        ) from error
    return list(description.devices)


def _axes(target: Target) -> list[tuple[int, int]]:
    dims = (*target.topology, 1, 1)[:3]
    return list(enumerate(dims))


def _first_lines(text: str, count: int = 6) -> str:
    return "\n".join(text.splitlines()[:count])


def device_mesh(axes: Mapping[str, int], devices: Sequence[Any]) -> Mesh:
    """A mesh of these axes over all ``devices``, laid out for the chips' links.

    Args:
        axes: Axis name to size; the sizes multiply to the number of devices.
        devices: The target's devices.
    """
    shape = tuple(axes.values())
    if math.prod(shape) != len(devices):
        raise ValueError(f"axes {dict(axes)} do not multiply to {len(devices)} devices")
    try:
        grid = mesh_utils.create_device_mesh(
            shape, devices=list(devices), allow_split_physical_axes=True
        )
    except (NotImplementedError, ValueError, AssertionError):
        # Some shapes have no good layout on a torus; any order is still correct.
        grid = np.array(devices, dtype=object).reshape(shape)
    return Mesh(grid, tuple(axes))
