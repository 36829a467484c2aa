"""Elementwise arithmetic of library calls that normalize: layer norms and softmax.

They hold no products. Their work stands beside the headline, as the elementwise
instructions would that they took the place of.
"""

from __future__ import annotations

import re

from hloscope.ir import Instruction
from hloscope.passes.flops.call_config import section
from hloscope.passes.flops.counts import Count, Kind
from hloscope.pipeline.findings import Basis

__all__ = ["count_normalization"]

# A layer norm's mean (1), centred value (1), its square summed (2), the scale by the
# inverse deviation (1), by the weight (1), and the bias (1).
_NORM_FORWARD = 7
# The normalized value again (2); the gradients of bias (1) and weight (2); the gradient
# times the weight (1), its mean (1) and its mean with the value (2); and out of these the
# input's gradient: two subtractions, a product, a scale (4).
_NORM_BACKWARD = 13
# The greatest of a row (1), the difference to it (1), the sum (1), the division (1).
_SOFTMAX_FORWARD = 4
# The product with the gradient summed (2), a subtraction, a product (2).
_SOFTMAX_BACKWARD = 4

_TE_SOFTMAX = re.compile(r"te_scaled_\w*softmax_(forward|backward)_ffi")


def count_normalization(instruction: Instruction) -> Count | None:
    """Count a layer norm or a softmax an element of its input; ``None`` for anything else."""
    target = instruction.custom_call_target or ""
    if target == "__cudnn$norm":
        config = section(instruction.backend_config, "cudnn_norm_backend_config")
        if "BWD" in str(config.get("kind", "")):
            return _count(instruction, _NORM_BACKWARD, "layer norm backward, 13 an element")
        return _count(instruction, _NORM_FORWARD, "layer norm, 7 an element")
    if target == "__onednn$layernorm":
        return _count(instruction, _NORM_FORWARD, "layer norm, 7 an element")
    if target == "__onednn$softmax":
        return _count(instruction, _SOFTMAX_FORWARD, "softmax, 4 an element", exponentials=1)
    softmax = _TE_SOFTMAX.fullmatch(target)
    if softmax is None:
        return None
    if softmax[1] == "backward":
        return _count(instruction, _SOFTMAX_BACKWARD + 1, "scaled softmax backward, 5 an element")
    return _count(instruction, _SOFTMAX_FORWARD + 1, "scaled softmax, 5 an element", exponentials=1)


def _count(
    instruction: Instruction, an_element: int, model: str, *, exponentials: int = 0
) -> Count:
    shape = instruction.operands[0].shape
    elements = shape.num_elements
    return Count(
        Kind.ELEMENTWISE,
        an_element * elements,
        Basis.MODELLED,
        model,
        (shape.dtype,),
        transcendentals=exponentials * elements,
    )
