"""Which devices a collective runs over, in the four spellings XLA prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

from hloscope.ir.attributes import parse_integers
from hloscope.ir.scan import split_list

__all__ = ["Groups", "parse_replica_groups"]

Groups = tuple[tuple[int, ...], ...]

_MOST_DEVICES = 1 << 24

_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?$")
_MESH = re.compile(r"mesh\[(.*?)\](?:\s*,\s*device_ids=(\(.*\)))?\s*\{(.*)\}$", re.DOTALL)
_DEVICE_RESHAPE = re.compile(r"\(\[([\d,]+)\](?:T\(([\d,]+)\))?\)$")
_MESH_AXIS = re.compile(r"'((?:[^'\\]|\\.)*)'=(\d+)")
_AXIS = re.compile(r"'((?:[^'\\]|\\.)*)'(?::\((\d+)\)(\d+))?")


@dataclass(frozen=True, slots=True)
class _Mesh:
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    devices: tuple[int, ...]


def parse_replica_groups(text: str) -> Groups:
    """Read replica groups as tuples of ids; ``()`` means one group of all.

    Understood are lists (``{{0,1},{2,3}}``), iota (``[2,4]<=[8]``,
    ``[4,2]<=[2,4]T(1,0)``) and mesh axes (``mesh['a'=2,'b'=4] {'a'}``).

    Raises:
        ValueError: None of these, or sizes that do not multiply out.
    """
    text = text.strip()
    if text.startswith("{"):
        return tuple(parse_integers(part) for part in split_list(text[1:-1]))
    if iota := _IOTA.match(text):
        groups, size = _two(parse_integers(iota.group(1)))
        order = _iota(parse_integers(iota.group(2)), parse_integers(iota.group(3) or ""))
        if groups * size != len(order):
            raise ValueError(f"{text} does not multiply out")
        return tuple(tuple(order[k * size : (k + 1) * size]) for k in range(groups))
    if mesh := _MESH.match(text):
        return _over_axes(_mesh(mesh.group(1), mesh.group(2)), mesh.group(3))
    raise ValueError(f"{text!r} names no replica groups")


def _device_count(sizes: tuple[int, ...]) -> int:
    """Devices of a mesh; what nobody can own is refused before it is written out."""
    if any(size < 1 for size in sizes) or (count := prod(sizes)) > _MOST_DEVICES:
        raise ValueError("expected sizes of 1 or more, of at most 2^24 devices in all")
    return count


def _two(numbers: tuple[int, ...]) -> tuple[int, int]:
    if len(numbers) != 2:
        raise ValueError("expected [groups,size]")
    return numbers[0], numbers[1]


def _iota(shape: tuple[int, ...], permutation: tuple[int, ...]) -> list[int]:
    """``arange(prod(shape)).reshape(shape).transpose(permutation).ravel()``."""
    _device_count(shape)
    permutation = permutation or tuple(range(len(shape)))
    if sorted(permutation) != list(range(len(shape))):
        raise ValueError("the permutation does not name each dimension once")
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
    return [
        sum(index * strides[axis] for index, axis in zip(at, permutation, strict=True))
        for at in product(*(range(shape[axis]) for axis in permutation))
    ]


def _mesh(axes: str, device_ids: str | None) -> _Mesh:
    named = _MESH_AXIS.findall(axes)
    sizes = tuple(int(size) for _, size in named)
    count = _device_count(sizes)
    if device_ids is None:
        devices = tuple(range(count))
    elif reshape := _DEVICE_RESHAPE.match(device_ids):
        permutation = parse_integers(reshape.group(2) or "")
        devices = tuple(_iota(parse_integers(reshape.group(1)), permutation))
    else:
        devices = parse_integers(device_ids.strip("() "))
    if len(devices) != count:
        raise ValueError("the mesh's sizes and device ids disagree")
    return _Mesh(tuple(name for name, _ in named), sizes, devices)


def _over_axes(mesh: _Mesh, axes: str) -> Groups:
    """Groups over the listed axes: members in listed order, groups in mesh order.

    A sub-axis ``'a':(pre)size`` splits an axis of size ``n`` into
    ``pre x size x n/(pre*size)`` and names the middle part.
    """
    names: list[tuple[str, int]] = []  # (axis, position within the axis)
    sizes: list[int] = []
    cuts = {name: {1, size} for name, size in zip(mesh.names, mesh.sizes, strict=True)}
    chosen: list[tuple[str, int, int]] = []
    for name, pre, size in _AXIS.findall(axes):
        if name not in cuts:
            raise ValueError(f"the mesh has no axis {name!r}")
        total = mesh.sizes[mesh.names.index(name)]
        before, extent = (int(pre), int(size)) if pre else (1, total)
        _device_count((before, extent))
        cuts[name] |= {before, before * extent}
        chosen.append((name, before, before * extent))
    for name in mesh.names:
        edges = sorted(cuts[name])
        for low, high in pairwise(edges):
            if high % low:
                raise ValueError(f"sub-axes of {name!r} do not divide it")
            names.append((name, low))
            sizes.append(high // low)
    members: list[int] = []
    for name, low, high in chosen:
        members += [k for k, (n, edge) in enumerate(names) if n == name and low <= edge < high]
    groups = [k for k in range(len(names)) if k not in members]
    strides = [prod(sizes[k + 1 :]) for k in range(len(sizes))]

    def positions(dims: list[int]) -> list[int]:
        return [
            sum(index * strides[d] for index, d in zip(at, dims, strict=True))
            for at in product(*(range(sizes[d]) for d in dims))
        ]

    inner = positions(members)
    return tuple(tuple(mesh.devices[outer + i] for i in inner) for outer in positions(groups))
