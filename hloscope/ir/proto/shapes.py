"""ShapeProto to Shape, layouts spelled as XLA's text spells them."""

from __future__ import annotations

from typing import Any, NoReturn

from hloscope.errors import InputError
from hloscope.ir.dtypes import BITS
from hloscope.ir.proto.schema import enum_name
from hloscope.ir.shape import UNBOUNDED, Layout, Shape

__all__ = ["ShapeReader", "dtype_name"]

_UNBOUNDED_SIZE = -(2**63)
_LEVELS = {
    "DIM_DENSE": "D",
    "DIM_COMPRESSED": "C",
    "DIM_SINGLETON": "S",
    "DIM_LOOSE_COMPRESSED": "H",
}


def dtype_name(number: int) -> str:
    """HLO's name of a ``PrimitiveType``, for example ``bf16``, ``tuple``, ``opaque``."""
    return enum_name("PrimitiveType", number).lower().removesuffix("_type")


class ShapeReader:
    """Reads shapes of one module; equal messages give the same object."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._known: dict[bytes, Shape] = {}

    def read(self, message: Any) -> Shape:
        """The Shape of a ShapeProto.

        Raises:
            InputError: An element type that is not known, a negative size, or
                a layout that does not name each dimension once.
        """
        key: bytes = message.SerializeToString()
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = self._shape(message)
        return shape

    def _shape(self, message: Any) -> Shape:
        dtype = dtype_name(message.element_type)
        if dtype == "tuple":
            return Shape("tuple", elements=tuple(self.read(m) for m in message.tuple_shapes))
        if dtype == "buffer":
            if len(message.tuple_shapes) != 1:
                self._fail("a buffer's shape does not hold exactly one array")
            return Shape("buffer", elements=(self.read(message.tuple_shapes[0]),))
        if dtype in ("token", "opaque"):
            return Shape(dtype)
        if dtype not in BITS:
            self._fail(f"a shape has element type {message.element_type}, which is not known")
        sizes = tuple(message.dimensions)
        flags = tuple(message.is_dynamic_dimension)
        if len(flags) not in (0, len(sizes)):
            self._fail("a shape marks more or fewer dynamic dimensions than it has dimensions")
        if any(size < 0 and size != _UNBOUNDED_SIZE for size in sizes):
            self._fail(f"a shape has a negative size among {list(sizes)[:8]}")
        dynamic = tuple(
            size == _UNBOUNDED_SIZE or flag
            for size, flag in zip(sizes, flags or (False,) * len(sizes), strict=True)
        )
        return Shape(
            dtype,
            tuple(UNBOUNDED if size == _UNBOUNDED_SIZE else size for size in sizes),
            self._layout(message.layout, len(sizes)) if message.HasField("layout") else None,
            (),
            dynamic if any(dynamic) else (),
        )

    def _layout(self, message: Any, rank: int) -> Layout | None:
        """The layout; ``None`` where text would print only ``{}``."""
        order = tuple(message.minor_to_major)
        if sorted(order) != list(range(rank)):
            self._fail(f"a layout names dimensions {list(order)[:8]} of a shape with {rank}")
        qualifiers = self._qualifiers(message)
        try:
            return Layout(order, qualifiers) if order or qualifiers else None
        except ValueError:
            self._fail(f"a layout's qualifiers make no sense: {qualifiers[:40]}")

    def _qualifiers(self, message: Any) -> str:
        parts = []
        if message.dim_level_types:
            parts.append(f"D({','.join(_levels(message))})")
        if message.tiles:
            tiles = (
                ",".join("*" if size == _UNBOUNDED_SIZE else str(size) for size in tile.dimensions)
                for tile in message.tiles
            )
            parts.append("T" + "".join(f"({tile})" for tile in tiles))
        if message.tail_padding_alignment_in_elements > 1:
            parts.append(f"L({message.tail_padding_alignment_in_elements})")
        if message.index_primitive_type:
            parts.append(f"#({dtype_name(message.index_primitive_type)})")
        if message.pointer_primitive_type:
            parts.append(f"*({dtype_name(message.pointer_primitive_type)})")
        if message.element_size_in_bits:
            parts.append(f"E({message.element_size_in_bits})")
        if message.memory_space:
            parts.append(f"S({message.memory_space})")
        if message.split_configs:
            splits = (
                f"({split.dimension}:{','.join(map(str, split.split_indices))})"
                for split in message.split_configs
            )
            parts.append("SC" + "".join(splits))
        if message.HasField("physical_shape"):
            parts.append(f"P({self.read(message.physical_shape)})")
        if message.dynamic_shape_metadata_prefix_bytes:
            parts.append(f"M({message.dynamic_shape_metadata_prefix_bytes})")
        return "".join(parts)

    def _fail(self, message: str) -> NoReturn:
        raise InputError(
            message,
            place=self._file,
            hint="The file is damaged, or was written by an XLA newer than this reader.",
        )


def _levels(message: Any) -> list[str]:
    """Letters of the dimension levels; ``+`` marks a level not unique, ``~`` one not ordered."""
    levels = []
    for k, level in enumerate(message.dim_level_types):
        letter = _LEVELS.get(enum_name("DimLevelType", level), "?")
        unique = k >= len(message.dim_unique) or message.dim_unique[k]
        ordered = k >= len(message.dim_ordered) or message.dim_ordered[k]
        levels.append(letter + ("" if unique else "+") + ("" if ordered else "~"))
    return levels
