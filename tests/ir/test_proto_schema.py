"""The reduced schema against XLA's own, and where its classes live."""

import mmap
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from hloscope.ir.proto.messages import MESSAGES
from hloscope.ir.proto.schema import enum_name, message_class

TYPES = {
    number: name[5:].lower() for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
OURS_ONLY = {
    # Nested in jaxlib 0.4.36; since then a field of the instruction.
    ("CollectiveDeviceListProto", "iota_replica_group_list"),
}


def varint(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


def embedded_descriptor(library, name):
    """The serialized FileDescriptorProto that protobuf's C++ code carries in its data."""
    head = b"\x0a" + bytes([len(name)]) + name
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = position = data.find(head)
        if start < 0:
            return None
        while True:  # fields of a FileDescriptorProto: messages and strings, up to syntax (12)
            tag, after = varint(data, position)
            if tag & 7 != 2 or not 1 <= tag >> 3 <= 12:
                break
            length, after = varint(data, after)
            position = after + length
        return descriptor_pb2.FileDescriptorProto.FromString(data[start:position])


@pytest.fixture(scope="module")
def xla_fields():
    jaxlib = pytest.importorskip("jaxlib")
    fields = {}

    def collect(message):
        for field in message.field:
            kind = TYPES[field.type]
            scalar = kind if kind not in ("message", "enum") else ""
            fields[message.name, field.name] = (field.number, field.label == 3, scalar)
        for nested in message.nested_type:
            collect(nested)

    for library in sorted(Path(jaxlib.__file__).parent.glob("*.so*")):
        for name in (b"xla/service/hlo.proto", b"xla/xla_data.proto"):
            if (file := embedded_descriptor(library, name)) is not None:
                for message in file.message_type:
                    collect(message)
    if not fields:
        pytest.skip("this jaxlib carries no descriptors")
    return fields


def test_every_field_has_the_number_and_type_that_jaxlib_gives_it(xla_fields):
    compared = 0
    for line in MESSAGES.replace("\n    ", " ").splitlines():
        name, _, body = line.partition(": ")
        for entry in body.split(";") if body else ():
            number, field, kind = entry.split()
            theirs = xla_fields.get((name, field))
            if theirs is None or (name, field) in OURS_ONLY:
                continue  # newer than this jaxlib, or nested under another name there
            scalar = "" if kind[0].isupper() else kind.rstrip("*?")
            assert (int(number), kind.endswith("*"), scalar) == theirs, (name, field)
            compared += 1
    assert compared > 250


def test_messages_live_outside_the_default_pool():
    assert message_class("HloModuleProto").DESCRIPTOR.file.pool is not descriptor_pool.Default()


def test_another_copy_of_the_messages_does_not_clash():
    code = (
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "file = descriptor_pb2.FileDescriptorProto(name='xla/service/hlo.proto', package='xla')\n"
        "message = file.message_type.add(name='HloModuleProto')\n"
        "message.field.add(name='name', number=7, type=9, label=1)\n"
        "descriptor_pool.Default().AddSerializedFile(file.SerializeToString())\n"
        "from hloscope.ir.proto.schema import message_class\n"
        "assert message_class('HloModuleProto')(name='m').SerializeToString() == b'\\n\\x01m'\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_enum_value_newer_than_the_schema_gets_a_name():
    assert enum_name("FftType", 2) == "RFFT"
    assert enum_name("FftType", 77) == "UNKNOWN_77"


def test_importing_the_ir_does_not_import_protobuf():
    code = (
        "import sys, hloscope.ir, hloscope.ir.load, hloscope.ir.proto\n"
        "sys.exit('google.protobuf' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
