"""HLO as data: modules, computations, instructions, shapes, and their readers."""

from hloscope.ir.module import Computation, Instruction, Module
from hloscope.ir.proto.reader import read_proto, read_text_proto
from hloscope.ir.shape import Layout, Shape, parse_shape
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.ir.text import parse_modules, parse_text

__all__ = [
    "Computation",
    "InputLeaf",
    "Instruction",
    "Layout",
    "Module",
    "OutputLeaf",
    "Role",
    "Shape",
    "Signature",
    "parse_modules",
    "parse_shape",
    "parse_text",
    "read_proto",
    "read_text_proto",
]
