"""FLOP models for custom calls of your own: see ``docs/custom_calls.md``."""

from hloscope.ir import Instruction
from hloscope.passes.flops.counts import Count, Kind
from hloscope.passes.flops.registered import register_flop_model
from hloscope.pipeline.findings import Basis

__all__ = ["Basis", "Count", "Instruction", "Kind", "register_flop_model"]
