"""Attributes of an instruction: from text to typed values.

The text of every attribute is the single source: the protobuf reader prints
its fields in XLA's spelling, so that one set of readers serves both formats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hloscope.ir.scan import (
    BALANCED,
    STRING,
    ScanError,
    end_of_value,
    skip_blank,
    split_list,
    unescape,
)

__all__ = [
    "ConvolutionDims",
    "DotDims",
    "Slice",
    "Window",
    "WindowDimension",
    "parse_dim_labels",
    "parse_frontend_attributes",
    "parse_integers",
    "parse_padding",
    "parse_slices",
    "parse_window",
    "scan_attributes",
    "split_attributes",
]

# A mesh's replica groups are the one value with blanks, and maybe a comma, outside brackets.
_MESH = rf"mesh\[[^\]]*+\](?:\s*,\s*device_ids=\((?:[^()]|\([^()]*\))*\))?\s*{BALANCED}"
_IOTA = r"\[[\d,]++\]<=\[[\d,]++\](?:T\([\d,]++\))?"
_WORD = r"%?[\w.\->+|?]++"
_ATTRIBUTE = re.compile(
    rf"\s*+,\s*+([A-Za-z_][\w.\-]*+)\s*+=\s*+"
    rf"({BALANCED}|{STRING}|{_MESH}|{_IOTA}|{_WORD}(?=\s*(?:,|$)))",
    re.DOTALL,
)
_KEY = re.compile(r"([A-Za-z_][\w.\-]*+)\s*+=\s*+")
_FLAG = re.compile(r"[A-Za-z_][\w.\-]*+")
_MESH_VALUE = re.compile(_MESH, re.DOTALL)
_STRING = re.compile(STRING, re.DOTALL)


def split_attributes(text: str) -> dict[str, str]:
    """Split ``, key=value, key=value`` into raw values by key.

    Values keep their brackets and quotes. A word with no ``=`` is a flag whose
    value is ``true``.

    Raises:
        ScanError: The text is not such a list; ``offset`` is where.
    """
    attributes: dict[str, str] = {}
    position = 0
    end = len(text)
    match = _ATTRIBUTE.match
    while position < end:
        found = match(text, position)
        if found is None:
            position = scan_attributes(text, position, attributes)
            if position < end:
                raise ScanError("expected ',' before an attribute", position)
        else:
            key, value = found.groups()
            attributes[key] = value
            position = found.end()
    return attributes


def scan_attributes(text: str, position: int, attributes: dict[str, str]) -> int:
    """Read attributes for as long as a comma announces another.

    Blanks, line ends and comments may stand anywhere between tokens.

    Args:
        text: Text to read.
        position: Where to begin: at the first comma, or blanks before it.
        attributes: Extended with what is found.

    Returns:
        Offset of the first character that belongs to no attribute.

    Raises:
        ScanError: A comma is followed by no attribute.
    """
    while True:
        position = skip_blank(text, position)
        if not text.startswith(",", position):
            return position
        position = skip_blank(text, position + 1)
        key = _KEY.match(text, position)
        if key is None:
            flag = _FLAG.match(text, position)
            if flag is None:
                raise ScanError("expected an attribute such as key=value", position)
            attributes[flag.group()] = "true"
            position = flag.end()
            continue
        start = key.end()
        position = _end_of_attribute(text, start)
        if position == start:
            raise ScanError(f"attribute {key.group(1)!r} has no value", start)
        attributes[key.group(1)] = text[start:position]


def _end_of_attribute(text: str, position: int) -> int:
    """Offset behind a value: up to the next blank, comma or closing bracket outside brackets."""
    if mesh := _MESH_VALUE.match(text, position):
        return mesh.end()
    while position < len(text):
        mark = text[position]
        if mark in "{([":
            position = end_of_value(text, position)
        elif mark == '"':
            string = _STRING.match(text, position)
            if string is None:
                raise ScanError("a string never ends", position)
            position = string.end()
        elif mark in ",})]" or mark.isspace():
            break
        else:
            position += 1
    return position


def parse_integers(text: str) -> tuple[int, ...]:
    """Read ``{0,1}`` (or ``0,1``)."""
    return tuple(int(n) for n in text.strip("{} ").split(",") if n.strip())


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One spatial dimension of a window; the defaults are XLA's."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    reversal: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the spatial dimensions, in their order."""

    dimensions: tuple[WindowDimension, ...] = ()


_WINDOW_FIELD = re.compile(r"(?<!\w)(\w++)=([\d_x\-]+)")


def parse_window(text: str) -> Window:
    """Read ``{size=3x3 pad=1_1x1_1 ...}``.

    Raises:
        ValueError: Fields disagree in their number of dimensions.
    """
    fields = {key: value.split("x") for key, value in _WINDOW_FIELD.findall(text)}
    sizes = fields.get("size", [])
    rank = len(sizes)

    def integers(key: str, default: int) -> list[int]:
        values = fields.get(key)
        return [default] * rank if values is None else [int(n) for n in values]

    pads = [_low_high(pad) for pad in fields.get("pad", ["0_0"] * rank)]
    return Window(
        tuple(
            WindowDimension(size, stride, pad[0], pad[1], window, base, bool(reverse))
            for size, stride, pad, base, window, reverse in zip(
                integers("size", 1),
                integers("stride", 1),
                pads,
                integers("lhs_dilate", 1),
                integers("rhs_dilate", 1),
                integers("rhs_reversal", 0),
                strict=True,
            )
        )
    )


def _low_high(text: str) -> tuple[int, int]:
    low, _, high = text.partition("_")
    return int(low), int(high)


@dataclass(frozen=True, slots=True)
class ConvolutionDims:
    """Which dimension of lhs, kernel and result plays which part.

    The ``spatial`` tuples are ordered by spatial dimension, as the window is.
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


def parse_dim_labels(text: str) -> ConvolutionDims:
    """Read ``b01f_01io->b01f``.

    Raises:
        ValueError: A part lacks one of its letters.
    """
    operands, _, result = text.partition("->")
    lhs, _, kernel = operands.partition("_")

    def spatial(part: str) -> tuple[int, ...]:
        return tuple(part.index(d) for d in sorted(c for c in part if c.isdecimal()))

    return ConvolutionDims(
        lhs.index("b"),
        lhs.index("f"),
        spatial(lhs),
        kernel.index("i"),
        kernel.index("o"),
        spatial(kernel),
        result.index("b"),
        result.index("f"),
        spatial(result),
    )


@dataclass(frozen=True, slots=True)
class DotDims:
    """Contracting and batch dimensions of a dot's two operands."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """``[start:limit:stride]`` of one dimension."""

    start: int
    limit: int
    stride: int = 1


def parse_slices(text: str) -> tuple[Slice, ...]:
    """Read ``{[0:2], [0:8:2]}``."""
    return tuple(
        Slice(*(int(n) for n in part.strip("[] ").split(":"))) for part in split_list(text[1:-1])
    )


def parse_padding(text: str) -> tuple[tuple[int, int, int], ...]:
    """Read ``0_1x2_2_1`` into (low, high, interior) per dimension."""
    triples = []
    for part in text.split("x"):
        numbers = [int(n) for n in part.split("_")]
        low, high, interior = [*numbers, 0][:3]
        triples.append((low, high, interior))
    return tuple(triples)


_FRONTEND = re.compile(
    rf"(?<![\w.$\-])([\w.$\-]++)\s*=\s*({STRING}|{BALANCED}|[^,]*)\s*(?:,|$)", re.DOTALL
)


def parse_frontend_attributes(text: str) -> dict[str, str]:
    """Read ``{key="value",key2={json}}``; quoted values come unescaped."""
    return {
        key: unescape(value[1:-1]) if value.startswith('"') else value.strip()
        for key, value in _FRONTEND.findall(text[1:-1])
    }
