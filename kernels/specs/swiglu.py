"""The gated half of a SwiGLU feed-forward layer."""

from __future__ import annotations

from hloscope.kernels.case import Family, Implementation, Size

__all__ = ["FAMILY"]

FAMILY = Family(
    name="swiglu",
    title="silu(rows gate) * (rows up), with gate and up side by side in [width, 2 hidden]",
    sizes=(
        Size("s", "rows", 4096),
        Size("d", "width", 512),
        Size("f", "hidden width", 1536),
    ),
    settings=(),
    implementations=(
        Implementation("two", "two products, with the halves of the weights"),
        Implementation("fused", "one product with the whole weights, split afterwards"),
    ),
    outputs=("output",),
)
