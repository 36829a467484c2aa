"""One update of AdamW."""

from __future__ import annotations

from hloscope.kernels.case import Direction, Family, Implementation, Size

__all__ = ["FAMILY"]

FAMILY = Family(
    name="adamw",
    title="an AdamW update of float32 parameters, with moments in float32 or bfloat16",
    sizes=(Size("s", "rows of the parameter", 4096), Size("d", "its columns", 1024)),
    settings=(),
    implementations=(
        Implementation("float32", "moments kept in float32"),
        Implementation("nearest", "moments kept in bfloat16, rounded to the nearest"),
        Implementation("hash", "in bfloat16, rounded at random by a hash of step and place"),
        Implementation("threefry", "in bfloat16, rounded at random by jax.random's threefry"),
    ),
    outputs=("parameter", "mean", "variance"),
    directions=(Direction.FORWARD,),
)
