"""What one instruction costs, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from hloscope.ir import Instruction, Shape
from hloscope.ir.dtypes import is_complex
from hloscope.pipeline.findings import Basis

__all__ = [
    "Count",
    "Kind",
    "bounded_by_shapes",
    "product_flops",
    "result_of",
    "size_of",
    "unknown",
]


class Kind(StrEnum):
    """What kind of product an instruction is."""

    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    KERNEL = "kernel"  # a custom kernel whose author recorded what it costs


@dataclass(frozen=True, slots=True)
class Count:
    """FLOPs of one execution of one instruction; a multiply-add is two.

    Attributes:
        kind: What it computes.
        flops: The number; an upper bound when ``basis`` is bounded, ``None``
            when it is unknown.
        basis: How it is known.
        model: What a modelled number rests on, or what bounds a bounded one.
        dtypes: Element types of the two sides of the product.
        masked_flops: For causal attention: what is left when the pairs that the
            mask hides are not counted.
        note: What else to know, for example why it is unknown.
    """

    kind: Kind
    flops: int | None
    basis: Basis = Basis.EXACT
    model: str = ""
    dtypes: tuple[str, ...] = ()
    masked_flops: int | None = None
    note: str = ""


def unknown(kind: Kind, reason: str) -> Count:
    """A product whose FLOPs cannot be told."""
    return Count(kind, None, Basis.UNKNOWN, note=reason)


def product_flops(result: Shape, contracted: int) -> int:
    """FLOPs of a matrix product.

    Each element of the result sums ``contracted`` products. A complex
    multiply-add is four real multiplies and four real adds.
    """
    flops = 2 * result.num_elements * contracted
    return 4 * flops if is_complex(result.dtype) else flops


def result_of(instruction: Instruction) -> Shape:
    """Shape of what is computed, without the scratch and bookkeeping beside it.

    Library calls return a tuple of the result and their workspace. The start of
    an asynchronous call returns its operands, its results and a context.
    """
    shape = instruction.shape
    if instruction.opcode.endswith("-start") and len(shape.elements) > 1:
        shape = shape.elements[1]
    return shape.elements[0] if shape.is_tuple else shape


def bounded_by_shapes(count: Count, *shapes: Shape) -> Count:
    """The count as an upper bound, where a size is only known as one."""
    if count.flops is None or not any(any(shape.dynamic) for shape in shapes):
        return count
    return replace(count, basis=Basis.BOUNDED, model="upper bounds of dynamic sizes")


def size_of(shape: Shape, dimensions: tuple[int, ...]) -> int:
    """Elements along some dimensions of a shape.

    Raises:
        IndexError: The shape lacks one of them.
    """
    return prod(shape.dimensions[d] for d in dimensions)
