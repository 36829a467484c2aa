"""Which memory an array lies in: the device's own, a core's, or the host's."""

from __future__ import annotations

from enum import StrEnum

from hloscope.ir import Module, Shape

__all__ = ["Space", "has_on_chip_memory", "space_of"]

_HOST = 5  # on GPU and TPU alike


class Space(StrEnum):
    """A kind of memory, by what its traffic is limited by."""

    DEVICE = "device"
    ON_CHIP = "on-chip"
    HOST = "host"


def has_on_chip_memory(module: Module) -> bool:
    """Whether a layout's memory space other than the host's means memory inside the core.

    It does on TPUs (vector memory, scalar memory, flags). On GPUs such numbers
    mark device memory that collectives use. XLA tiles arrays for TPUs only.
    """
    shapes = [parameter.shape for parameter in module.entry.parameters]
    shapes.append(module.entry.root.shape)
    return any(
        leaf.layout is not None and leaf.layout.tiles for shape in shapes for leaf in shape.leaves()
    )


def space_of(shape: Shape, *, on_chip: bool) -> Space:
    """Where an array lies.

    Args:
        shape: Of one array.
        on_chip: What :func:`has_on_chip_memory` says of its module.
    """
    number = shape.layout.memory_space if shape.layout is not None else 0
    if number == 0:
        return Space.DEVICE
    if number == _HOST:
        return Space.HOST
    return Space.ON_CHIP if on_chip else Space.DEVICE
