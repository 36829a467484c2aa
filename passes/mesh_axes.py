"""Along which axes of the device mesh an exchange runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import prod

from hloscope.errors import Unavailable
from hloscope.ir import Module
from hloscope.ir.replica_groups import Groups
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import MeshAxes

__all__ = ["axes_of_groups", "axes_of_pairs", "named_mesh", "read_mesh"]

_MOST_AXES = 8
_MESH = re.compile(r"mesh\[([^\]]*)\]")
_MADE_UP = re.compile(r"axis_\d+")  # by the partitioner, for a mesh without names
_AXIS = re.compile(r"'((?:[^'\\]|\\.)*)'=(\d+)")


@analysis
def read_mesh(module: Module) -> MeshAxes:
    """The mesh that a module itself names in its replica groups.

    Raises:
        Unavailable: It names none; most modules list device numbers only.
    """
    for computation in module.computations.values():
        for instruction in computation.instructions:
            found = named_mesh(instruction.attributes.get("replica_groups", ""))
            if found is not None:
                return found
    raise Unavailable("the module names no mesh axes, only device numbers")


def named_mesh(groups: str) -> MeshAxes | None:
    """The mesh that replica groups are written over, where they are and it has names."""
    found = _MESH.search(groups)
    axes = _AXIS.findall(found.group(1)) if found is not None else []
    if not axes or all(_MADE_UP.fullmatch(name) for name, _ in axes):
        return None
    return MeshAxes({name: int(size) for name, size in axes})


def axes_of_groups(groups: Groups, mesh: MeshAxes) -> tuple[str, ...] | None:
    """The axes whose devices each group holds, in the mesh's order.

    Devices are numbered over the mesh's axes, the last one fastest, as JAX
    assigns them. An axis of one device is in no answer.

    Args:
        groups: Device numbers; ``()`` is one group of all.
        mesh: The mesh's axes.

    Returns:
        ``None`` where no set of axes gives these groups.
    """
    if not groups:
        return tuple(name for name, size in mesh.sizes.items() if size > 1)
    # Groups hold every device once, so that a mesh of another size is out of the question.
    if sum(map(len, groups)) != prod(mesh.sizes.values()):
        return None
    wanted = {frozenset(group) for group in groups}
    for axes in _subsets(mesh):
        if _groups_over(axes, mesh) == wanted:
            return axes
    return None


def axes_of_pairs(pairs: Sequence[tuple[int, int]], mesh: MeshAxes) -> tuple[str, ...] | None:
    """The axes along which a permute's sources and targets lie apart.

    Returns:
        ``None`` where a device is in no place of the mesh.
    """
    names, sizes = tuple(mesh.sizes), tuple(mesh.sizes.values())
    moved: set[str] = set()
    for pair in pairs:
        if any(not 0 <= device < prod(sizes) for device in pair):
            return None
        source, target = (_coordinates(device, sizes) for device in pair)
        moved |= {n for n, a, b in zip(names, source, target, strict=True) if a != b}
    return tuple(name for name in names if name in moved)


def _subsets(mesh: MeshAxes) -> Iterator[tuple[str, ...]]:
    """Sets of axes that hold more than one device, few axes first."""
    wide = [name for name, size in mesh.sizes.items() if size > 1][:_MOST_AXES]
    for number in range(len(wide) + 1):
        yield from combinations(wide, number)


def _groups_over(axes: Sequence[str], mesh: MeshAxes) -> set[frozenset[int]]:
    sizes = tuple(mesh.sizes.values())
    groups: dict[tuple[int, ...], set[int]] = {}
    for number, place in enumerate(product(*map(range, sizes))):
        rest = tuple(
            index for name, index in zip(mesh.sizes, place, strict=True) if name not in axes
        )
        groups.setdefault(rest, set()).add(number)
    return {frozenset(group) for group in groups.values()}


def _coordinates(device: int, sizes: Sequence[int]) -> tuple[int, ...]:
    place = []
    for size in reversed(sizes):
        device, index = divmod(device, size)
        place.append(index)
    return tuple(reversed(place))
