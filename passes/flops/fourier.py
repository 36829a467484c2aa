"""``fft``: the textbook count of a fast Fourier transform."""

from __future__ import annotations

from math import log2, prod

from hloscope.ir import Instruction
from hloscope.ir.attributes import parse_integers
from hloscope.passes.flops.counts import Count, Kind, bounded_by_shapes
from hloscope.pipeline.findings import Basis

__all__ = ["count_fft"]


def count_fft(instruction: Instruction) -> Count:
    """``5 N log2 N`` for each transform of ``N`` points, half of it for real ones.

    ``N`` is the product of the lengths. XLA multiplies the logarithms of the
    lengths instead of adding them, and rounds each down.

    Raises:
        ValueError: There are no lengths, or a length of zero.
    """
    points = prod(parse_integers(instruction.attributes.get("fft_length", "{0}")))
    if points <= 0:
        raise ValueError("it has no fft_length")
    kind = instruction.attributes.get("fft_type", "FFT").upper()
    # The side that is not halved by symmetry holds all the points.
    whole = instruction.operands[0].shape if kind == "RFFT" else instruction.shape
    real = kind in ("RFFT", "IRFFT")
    flops = round((2.5 if real else 5.0) * log2(points) * whole.num_elements)
    dtype = instruction.operands[0].shape.dtype
    count = Count(
        Kind.FFT,
        flops,
        Basis.MODELLED,
        "2.5 N log2 N for a real transform" if real else "5 N log2 N",
        (dtype,),
        accumulation=instruction.shape.dtype,
    )
    return bounded_by_shapes(count, whole)
