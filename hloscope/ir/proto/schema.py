"""The message classes of :mod:`hloscope.ir.proto.messages`, built on first use.

They live in a descriptor pool of their own, so that another package's copies
of the same messages (TensorFlow's, TensorBoard's) cannot clash with them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from hloscope.ir.proto.messages import ENUMS, MESSAGES

__all__ = ["enum_name", "message_class"]

_PACKAGE = "hloscope"


def message_class(name: str) -> Any:
    """The class of a message, for example ``HloModuleProto``."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def enum_name(enum: str, number: int) -> str:
    """Name of an enum's value, or ``UNKNOWN_<number>`` for one newer than this schema."""
    return _enum_names()[enum].get(number, f"UNKNOWN_{number}")


@cache
def _enum_names() -> dict[str, dict[int, str]]:
    enums = {}
    for name, body in _entries(ENUMS):
        pairs = (value.split() for value in body.split(","))
        enums[name] = {int(number): value for number, value in pairs}
    return enums


def _entries(table: str) -> list[tuple[str, str]]:
    """(name, body) of each entry of a table, continuation lines joined."""
    joined = re.sub(r"\n[ ]+", " ", table)
    return [
        (head, body)
        for head, _, body in (line.partition(": ") for line in joined.split("\n") if line)
    ]


@cache
def _pool() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(
        name="hloscope/hlo.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, values in _enum_names().items():
        # Values of an enum share their parent's scope, so each enum gets a scope of its own.
        enum = file.message_type.add(name=f"{name}Enum").enum_type.add(name=name)
        for number, value in values.items():
            enum.value.add(name=value, number=number)
    for name, body in _entries(MESSAGES):
        message = file.message_type.add(name=name)
        for entry in body.split(";"):
            _add_field(message, *entry.split())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _add_field(message: Any, number: str, name: str, kind: str) -> None:
    """Add one field of a message's line in the table."""
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    bare = kind.rstrip("*?")
    if bare in _enum_names():
        field.type = field.TYPE_ENUM
        field.type_name = f".{_PACKAGE}.{bare}Enum.{bare}"
    elif bare[0].isupper():
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{bare}"
    else:
        field.type = getattr(field, f"TYPE_{bare.upper()}")
    if kind.endswith("?"):
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
