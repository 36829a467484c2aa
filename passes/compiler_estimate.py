"""What a TPU compiler itself expects each instruction to take."""

from __future__ import annotations

from hloscope.ir import Instruction
from hloscope.passes.flops.call_config import nested

__all__ = ["estimated_cycles"]

_PLACES = ("window_config", "bundle_analysis_data")


def estimated_cycles(instruction: Instruction) -> int | None:
    """Cycles of one run by the compiler's own cost model; ``None`` where it left none.

    It stands with instructions that the compiler tiles into windows: fusions,
    copies, broadcasts. Collectives, kernels and transfers carry none.
    """
    if "estimated_cycles" not in instruction.attributes.get("backend_config", ""):
        return None
    config = instruction.backend_config
    for place in _PLACES:
        text = str(nested(config, place).get("estimated_cycles", ""))
        if text.isdecimal() and int(text) > 0:
            return int(text)
    return None
