"""The module's header line: name, aliases, donors, layouts, partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hloscope.ir.attributes import parse_integers, split_attributes
from hloscope.ir.scan import end_of_value, skip_blank, split_list
from hloscope.ir.shape import Shape, parse_shape

__all__ = ["Alias", "Donor", "ModuleHeader", "parse_header"]


@dataclass(frozen=True, slots=True)
class Alias:
    """A result that takes over a parameter's buffer.

    ``kind`` is ``may-alias`` or ``must-alias``; text from before the kinds
    existed means ``may-alias``.
    """

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...] = ()
    kind: str = "may-alias"


@dataclass(frozen=True, slots=True)
class Donor:
    """A parameter whose buffer XLA may reuse for anything."""

    parameter: int
    parameter_index: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleHeader:
    """What stands on the ``HloModule`` line.

    Attributes:
        attributes: Raw value of every attribute by key, understood or not.
        entry_layout: Shapes of the parameters and of the result, if printed.
        devices: Ids of the devices that the program was compiled for, by what replica groups
            call them: replica after replica, each with its partitions. A protobuf may tell
            them, the text never does.
    """

    name: str
    is_scheduled: bool = False
    input_output_alias: tuple[Alias, ...] = ()
    buffer_donors: tuple[Donor, ...] = ()
    entry_layout: tuple[tuple[Shape, ...], Shape] | None = None
    num_partitions: int = 1
    replica_count: int = 1
    attributes: dict[str, str] = field(default_factory=dict)
    devices: tuple[int, ...] = ()


_ALIAS = re.compile(
    r"\{([\d,\s]*)\}\s*:\s*(?:\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}\s*(?:,\s*([\w\-]+)\s*)?\)|(\d+))"
)
_DONOR = re.compile(r"\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}\s*\)")


def parse_header(name: str, text: str) -> ModuleHeader:
    """Read the attributes behind the module's name.

    Args:
        name: The module's name.
        text: ``, key=value, ...`` up to the end of the header.

    Raises:
        ValueError: An attribute that the IR reads is malformed (``ScanError``
            and ``ShapeError`` included).
    """
    attributes = split_attributes(text)
    layout = attributes.get("entry_computation_layout")
    return ModuleHeader(
        name=name,
        is_scheduled=attributes.get("is_scheduled") == "true",
        input_output_alias=_aliases(attributes.get("input_output_alias", "")),
        buffer_donors=tuple(
            Donor(int(parameter), parse_integers(index))
            for parameter, index in _DONOR.findall(attributes.get("buffer_donor", ""))
        ),
        entry_layout=_entry_layout(layout) if layout else None,
        num_partitions=int(attributes.get("num_partitions", "1")),
        replica_count=int(attributes.get("replica_count", "1")),
        attributes=attributes,
    )


def _aliases(text: str) -> tuple[Alias, ...]:
    found = _ALIAS.findall(text)
    if len(found) != text.count(":"):
        raise ValueError("input_output_alias holds an entry that is no alias")
    return tuple(
        Alias(
            parse_integers(output),
            int(parameter or bare),
            parse_integers(index),
            kind or "may-alias",
        )
        for output, parameter, index, kind, bare in found
    )


def _entry_layout(text: str) -> tuple[tuple[Shape, ...], Shape]:
    start = skip_blank(text, 1)
    close = end_of_value(text, start)
    cache: dict[str, Shape] = {}
    parameters = tuple(parse_shape(part, cache) for part in split_list(text[start + 1 : close - 1]))
    arrow = skip_blank(text, close)
    if not text.startswith("->", arrow):
        raise ValueError("entry_computation_layout has no result")
    return parameters, parse_shape(text[arrow + 2 : -1].strip(), cache)
