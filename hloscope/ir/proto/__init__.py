"""Reading XLA's protobuf messages; protobuf itself is imported on first use."""

from hloscope.ir.proto.buffers import Allocation, Assigned, BufferAssignment, LogicalBuffer
from hloscope.ir.proto.reader import read_proto, read_text_proto

__all__ = [
    "Allocation",
    "Assigned",
    "BufferAssignment",
    "LogicalBuffer",
    "read_proto",
    "read_text_proto",
]
