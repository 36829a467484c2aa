"""Shapes and layouts, and the text that XLA prints for them."""

from __future__ import annotations

import re
from functools import cached_property
from math import prod

from hloscope.errors import Unavailable
from hloscope.ir.dtypes import BITS, KEYWORD_TYPES

__all__ = ["UNBOUNDED", "Layout", "Shape", "ShapeError", "parse_shape", "shape_end"]

UNBOUNDED = -1
"""Stands in ``Shape.dimensions`` for a size that is not known (``?`` in text)."""


class ShapeError(ValueError):
    """Text that is no shape; ``offset`` is where it goes wrong."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Layout:
    """How an array lies in memory.

    Attributes:
        minor_to_major: Dimension numbers, the fastest varying first.
        tiles: Tile sizes, outermost tiling first; a ``*`` is -1.
        memory_space: XLA's number; 0 is the default space, 5 is host memory on
            GPU and TPU alike.
        element_bits: Bits an element takes when packed, 0 if not packed.
        qualifiers: Everything after the colon, as printed.
    """

    __slots__ = ("element_bits", "memory_space", "minor_to_major", "qualifiers", "tiles")

    def __init__(self, minor_to_major: tuple[int, ...], qualifiers: str = "") -> None:
        self.minor_to_major = minor_to_major
        self.qualifiers = qualifiers
        self.tiles: tuple[tuple[int, ...], ...] = ()
        self.memory_space = 0
        self.element_bits = 0
        if qualifiers:
            self._read_qualifiers(qualifiers)

    def _read_qualifiers(self, text: str) -> None:
        for letters, body in _QUALIFIER.findall(text):
            if letters == "T":
                groups = re.findall(r"\(([^()]*)\)", body)
                self.tiles = tuple(tuple(_tile_size(n) for n in g.split(",")) for g in groups)
            elif letters == "S":
                self.memory_space = int(body[1:-1])
            elif letters == "E":
                self.element_bits = int(body[1:-1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self.minor_to_major == other.minor_to_major and self.qualifiers == other.qualifiers

    def __hash__(self) -> int:
        return hash((self.minor_to_major, self.qualifiers))

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        return f"{{{order}:{self.qualifiers}}}" if self.qualifiers else f"{{{order}}}"

    __repr__ = __str__


class Shape:
    """An array, a tuple, a buffer, a token or an opaque value.

    Attributes:
        dtype: Element type, or ``tuple``, ``buffer``, ``token``, ``opaque``.
        dimensions: Sizes (upper bounds where dynamic); ``UNBOUNDED`` where the
            text has ``?``.
        dynamic: Which dimensions may be smaller at run time; empty when none.
        layout: ``None`` where the text gives none.
        elements: Members of a tuple, or the one array of a buffer.
    """

    __slots__ = ("__dict__", "dimensions", "dtype", "dynamic", "elements", "layout")

    def __init__(
        self,
        dtype: str,
        dimensions: tuple[int, ...] = (),
        layout: Layout | None = None,
        elements: tuple[Shape, ...] = (),
        dynamic: tuple[bool, ...] = (),
    ) -> None:
        self.dtype = dtype
        self.dimensions = dimensions
        self.layout = layout
        self.elements = elements
        self.dynamic = dynamic

    @property
    def is_tuple(self) -> bool:
        """Whether this is a tuple of shapes."""
        return self.dtype == "tuple"

    @property
    def is_array(self) -> bool:
        """Whether this holds elements of one type."""
        return self.dtype in BITS

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dimensions)

    @property
    def num_elements(self) -> int:
        """Elements of an array (upper bound where dynamic); 0 for anything else.

        Raises:
            Unavailable: A dimension is unbounded, so nothing can be counted.
        """
        if not self.is_array:
            return 0
        if UNBOUNDED in self.dimensions:
            raise Unavailable(f"{self} has no upper bound")
        return prod(self.dimensions)

    @property
    def element_bits(self) -> int:
        """Bits that one element takes in memory."""
        bits = BITS.get(self.dtype, 0)
        packed = self.layout.element_bits if self.layout else 0
        return packed or -(-bits // 8) * 8

    @cached_property
    def bytes(self) -> int:
        """Bytes of all elements without padding; tuples sum their members.

        Pointer tables of tuples, tokens and opaque values count as 0.
        """
        if self.elements:
            return sum(element.bytes for element in self.elements)
        return -(-self.num_elements * self.element_bits // 8)

    @cached_property
    def padded_bytes(self) -> int:
        """Bytes in memory with the tile padding that the layout asks for.

        The leading tile covers the most minor dimensions of the
        ``minor_to_major`` order, and each covered dimension is rounded up to a
        multiple of its tile size. Further tiles subdivide the first and add
        no padding as long as they divide it, which all of XLA's do.
        """
        if self.elements:
            return sum(element.padded_bytes for element in self.elements)
        if self.layout is None or not self.layout.tiles or not self.is_array:
            return self.bytes
        sizes = [self.dimensions[d] for d in self.layout.minor_to_major]
        tile = self.layout.tiles[0][::-1]
        sizes += [1] * (len(tile) - len(sizes))
        for k, size in enumerate(tile):
            if size > 0:
                sizes[k] = -(-sizes[k] // size) * size
        return -(-prod(sizes) * self.element_bits // 8)

    def leaves(self) -> tuple[Shape, ...]:
        """All shapes that are not tuples, left to right."""
        if not self.is_tuple:
            return (self,)
        return tuple(leaf for element in self.elements for leaf in element.leaves())

    def without_layout(self) -> Shape:
        """The same shape with no layout anywhere."""
        elements = tuple(element.without_layout() for element in self.elements)
        return Shape(self.dtype, self.dimensions, None, elements, self.dynamic)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Shape):
            return NotImplemented
        return (
            self.dtype == other.dtype
            and self.dimensions == other.dimensions
            and self.layout == other.layout
            and self.elements == other.elements
            and self.dynamic == other.dynamic
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.dimensions, self.layout, self.elements))

    def __str__(self) -> str:
        if self.is_tuple:
            parts = [
                f"/*index={k}*/{element}" if k and k % 5 == 0 else str(element)
                for k, element in enumerate(self.elements)
            ]
            return f"({', '.join(parts)})"
        if self.dtype == "buffer":
            return f"b({self.elements[0]})"
        dynamic = self.dynamic or (False,) * len(self.dimensions)
        sizes = ",".join(
            "?" if n == UNBOUNDED else f"<={n}" if d else str(n)
            for n, d in zip(self.dimensions, dynamic, strict=True)
        )
        layout = str(self.layout) if self.layout is not None else ""
        return f"{self.dtype}[{sizes}]{'' if layout == '{}' else layout}"

    def __repr__(self) -> str:
        return f"Shape({self})"


def parse_shape(text: str, cache: dict[str, Shape] | None = None) -> Shape:
    """Read one shape from its whole text.

    Args:
        text: For example ``(f32[2,3]{1,0}, /*index=1*/token[])``.
        cache: Shapes by their text, read and extended.

    Raises:
        ShapeError: The text is not one shape.
    """
    if cache is not None and (known := cache.get(text)) is not None:
        return known
    shape, end = _read(text, 0, cache if cache is not None else {}, 0)
    end = _skip(text, end)
    if end != len(text):
        raise ShapeError("text after the end of the shape", end)
    if cache is not None:
        cache[text] = shape
    return shape


def shape_end(text: str, at: int) -> int:
    """Offset just behind the shape that begins at ``at``.

    Raises:
        ShapeError: There is none.
    """
    return _read(text, at, {}, 0)[1]


_ARRAY = re.compile(
    r"([a-z][a-z0-9]*)\[([^\]\[(){}]*)\](?:\{([0-9,]*)(?::((?:[^{}()]|\((?:[^{}()]|\([^{}()]*\))*\))*))?\})?"
)
_BLANK = re.compile(r"(?:\s|/\*.*?\*/)*", re.DOTALL)
_QUALIFIER = re.compile(r"([A-Z#*]+)((?:\([^()]*(?:\([^()]*\)[^()]*)*\))+)")
_MAX_DEPTH = 64


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _read(text: str, at: int, cache: dict[str, Shape], depth: int) -> tuple[Shape, int]:
    """Read a shape that begins at ``at``; gives it and where it ends."""
    if depth > _MAX_DEPTH:
        raise ShapeError(f"tuples nested more than {_MAX_DEPTH} deep", at)
    at = _skip(text, at)
    if text.startswith("(", at):
        return _read_tuple(text, at, cache, depth)
    if text.startswith("b(", at):
        inner, end = _read(text, at + 2, cache, depth + 1)
        end = _skip(text, end)
        if not text.startswith(")", end):
            raise ShapeError("expected ')' after the buffer's shape", end)
        return Shape("buffer", elements=(inner,)), end + 1
    match = _ARRAY.match(text, at)
    if match is None:
        raise ShapeError("expected a shape such as f32[8,128]{1,0}", at)
    found = match.group()
    end = match.end()
    if match.group(3) is None and text.startswith("{", end):
        return _read_deep_layout(text, match, end)
    known = cache.get(found)
    if known is None:
        known = cache[found] = _array(match, at)
    return known, end


def _read_tuple(text: str, at: int, cache: dict[str, Shape], depth: int) -> tuple[Shape, int]:
    elements: list[Shape] = []
    end = _skip(text, at + 1)
    if text.startswith(")", end):
        return Shape("tuple"), end + 1
    while True:
        element, end = _read(text, end, cache, depth + 1)
        elements.append(element)
        end = _skip(text, end)
        if text.startswith(",", end):
            end += 1
        elif text.startswith(")", end):
            return Shape("tuple", elements=tuple(elements)), end + 1
        else:
            raise ShapeError("expected ',' or ')' in a tuple's shape", end)


def _read_deep_layout(text: str, match: re.Match[str], at: int) -> tuple[Shape, int]:
    """Read a layout whose qualifiers hold braces of their own, such as ``P(f32[2]{0})``."""
    level = 0
    for end in range(at, len(text)):
        level += (text[end] == "{") - (text[end] == "}")
        if level == 0:
            break
    else:
        raise ShapeError("the layout never closes", at)
    order, _, qualifiers = text[at + 1 : end].partition(":")
    bare = _array(match, match.start())
    try:
        layout = Layout(tuple(int(n) for n in order.split(",") if n), qualifiers)
    except ValueError:
        raise ShapeError("expected dimension numbers in the layout", at) from None
    return Shape(bare.dtype, bare.dimensions, layout, (), bare.dynamic), end + 1


def _array(match: re.Match[str], at: int) -> Shape:
    dtype, sizes, order, qualifiers = match.groups()
    if dtype not in BITS and dtype not in KEYWORD_TYPES:
        raise ShapeError(f"unknown element type {dtype!r}", at)
    dimensions: list[int] = []
    dynamic: list[bool] = []
    for size in sizes.split(",") if sizes else ():
        text = size.strip()
        bounded = text.startswith("<=")
        if text == "?":
            dimensions.append(UNBOUNDED)
            dynamic.append(True)
        elif (digits := text[2:] if bounded else text).isdecimal() and len(digits) < 19:
            dimensions.append(int(digits))
            dynamic.append(bounded)
        else:
            raise ShapeError(f"{text!r} is no dimension", match.start(2))
    layout = None
    if order is not None:
        try:
            minor_to_major = tuple(int(n) for n in order.split(",") if n)
            layout = Layout(minor_to_major, qualifiers or "")
        except ValueError:
            raise ShapeError("expected numbers in the layout", match.start(3)) from None
        if sorted(minor_to_major) != list(range(len(dimensions))):
            raise ShapeError("the layout does not name each dimension once", match.start(3))
        if not minor_to_major and not qualifiers:
            layout = None
    return Shape(dtype, tuple(dimensions), layout, (), tuple(dynamic) if any(dynamic) else ())


def _tile_size(text: str) -> int:
    return -1 if text.strip() == "*" else int(text)
