"""A short causal convolution along the tokens that are there."""

from __future__ import annotations

from hloscope.kernels.case import Family, Implementation, Setting, Size

__all__ = ["FAMILY"]

FAMILY = Family(
    name="short_convolution",
    title="a causal convolution of each channel along the unmasked tokens of a row",
    sizes=(
        Size("b", "batch", 4),
        Size("s", "sequence length", 1024),
        Size("d", "channels", 512),
        Size("t", "taps, the token itself included", 4),
    ),
    settings=(Setting("masked", "per cent of the tokens that are masked", default=25, most=100),),
    implementations=(
        Implementation("scan", "a loop over tokens that carries the last unmasked ones"),
        Implementation("compacted", "unmasked tokens gathered, convolved at once, put back"),
    ),
    outputs=("output",),
)
