"""What one instruction costs, and how that is known."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from hloscope.ir import Instruction, Shape
from hloscope.ir.dtypes import is_complex
from hloscope.pipeline.findings import Basis

__all__ = [
    "HEADLINE",
    "Count",
    "Kind",
    "NoProducts",
    "Unmodelled",
    "accumulation_dtype",
    "bounded_by_shapes",
    "product_flops",
    "result_of",
    "size_of",
    "unknown",
]


class Kind(StrEnum):
    """What kind of work an instruction does."""

    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    LINEAR_ALGEBRA = "linear algebra"  # factorizations, solves, eigenvalues
    FFT = "fft"
    KERNEL = "kernel"  # a custom kernel that its author, or the user, says the cost of
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    OTHER = "other"  # comparisons of sorts, random bits

    @property
    def heading(self) -> str:
        """What a report calls it."""
        return _HEADINGS[self]


_HEADINGS = {
    Kind.MATMUL: "matrix products",
    Kind.CONVOLUTION: "convolutions",
    Kind.ATTENTION: "fused attention",
    Kind.LINEAR_ALGEBRA: "linear algebra",
    Kind.FFT: "Fourier transforms",
    Kind.KERNEL: "custom kernels, as recorded",
    Kind.ELEMENTWISE: "elementwise",
    Kind.REDUCTION: "reductions",
    Kind.OTHER: "sorting and random bits",
}

HEADLINE = frozenset(Kind) - {Kind.ELEMENTWISE, Kind.REDUCTION, Kind.OTHER}
"""Kinds that make up the headline, from which utilisation is computed.

Factorizations and Fourier transforms are among them because TPU compilers
write both as matrix products: the same program must cost the same everywhere.
"""


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
        masked_flops: For causal or windowed attention: what is left when the
            pairs that the mask hides are not counted.
        note: What else to know, for example why it is unknown.
        accumulation: Element type that sums are kept in, as far as the program
            asks for one; empty where it does not say.
        transcendentals: Calls of functions such as ``exp``, which XLA counts
            apart from FLOPs.
        recomputed_flops: Part of ``flops`` that the instruction spends on
            computing again what an earlier one had: in backward attention the
            scores. ``flops - recomputed_flops`` is the model's own work.
    """

    kind: Kind
    flops: int | None
    basis: Basis = Basis.EXACT
    model: str = ""
    dtypes: tuple[str, ...] = ()
    masked_flops: int | None = None
    note: str = ""
    accumulation: str = ""
    transcendentals: int = 0
    recomputed_flops: int = 0

    def without_masked_pairs(self) -> Count:
        """The count with ``masked_flops`` as its FLOPs, and the rest in proportion.

        Where no mask hides anything it is the count itself.
        """
        if self.masked_flops is None or not self.flops:
            return self
        visible, dense = self.masked_flops, self.flops
        return replace(
            self,
            flops=visible,
            # FLOPs, exponentials and recomputation are all so many per pair.
            transcendentals=self.transcendentals * visible // dense,
            recomputed_flops=self.recomputed_flops * visible // dense,
            model=self.model.replace("dense", "masked"),
        )


@dataclass(frozen=True, slots=True)
class NoProducts:
    """A custom call that is known to hold no products.

    Attributes:
        purpose: What it is for.
        arithmetic: Whether it computes elementwise, so that it adds to the
            work beside the headline.
    """

    purpose: str
    arithmetic: bool = False


@dataclass(frozen=True, slots=True)
class Unmodelled:
    """A custom call of which nothing is known but its target and shapes."""

    reason: str


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


_ALGORITHM = re.compile(r"(?:alg_)?dot_(?:any_f8_any_f8|[a-z]+\d+_[a-z]+\d+)_([a-z]+\d+)(?:_.*)?")


def accumulation_dtype(algorithm: str, result: Shape) -> str:
    """Element type in which a product's sums are kept, as the program asks for it.

    An algorithm such as ``dot_bf16_bf16_f32_x3`` names it third. Otherwise it
    is the result's, JAX's ``preferred_element_type``; a matrix unit may keep
    its sums wider than that.
    """
    match = _ALGORITHM.fullmatch(algorithm.lower())
    return match[1] if match else result.dtype


def result_of(instruction: Instruction) -> Shape:
    """Shape of what is computed, without the scratch and bookkeeping beside it.

    Library calls return a tuple of the result and their workspace.
    """
    shape = instruction.shape
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
