"""Which way XLA took with a kernel: library calls, kernels, fused or plain products, loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.passes.execution import Execution
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.score_arrays import ScoreArrays
from hloscope.pipeline.findings import Basis, Quantity, Unit
from hloscope.pipeline.session import Session

__all__ = ["Route", "memory_of", "read_route"]

XLA_MEMORY = "XLA's memory analysis"

_CALLS = (
    ("__cudnn$fmha", "cuDNN attention"),
    ("__cudnn$conv", "cuDNN convolution"),
    ("__cublas", "cuBLAS product"),
    ("__gpu$xla.gpu.triton", "Pallas kernel (Triton)"),
    ("mosaic_gpu", "Pallas kernel (Mosaic GPU)"),
    ("tpu_custom_call", "Pallas kernel (Mosaic)"),
    ("__onednn", "oneDNN product"),
    ("RaggedDot", "ragged product"),
)
_NO_KERNELS = frozenset({"AllocateBuffer"})
"""Custom calls that only name memory."""

_PRODUCTS = {"dot": "product", "ragged-dot": "ragged product", "convolution": "convolution"}


@dataclass(frozen=True, slots=True)
class Route:
    """How one call of a program runs.

    Attributes:
        launches: Kernels of one call: instructions that run by themselves, loops
            multiplied.
        calls: Custom calls by target, and how often each runs.
        words: The same for people, with products and loops.
    """

    launches: Quantity
    calls: Mapping[str, int]
    words: str


def read_route(session: Session) -> Route:
    """Read the route of an optimized program.

    Raises:
        AnalysisFailedError: The program could not be followed.
    """
    execution = session.get(Execution)
    holders = {
        execution.launch_of(row.instruction): row.instruction
        for row in session.get(FlopLedger).rows
    }
    low = nominal = 0
    high: int | None = 0
    calls: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for launch in execution.launched():
        if launch.custom_call_target in _NO_KERNELS:
            continue
        times = execution.times[launch.computation]
        low, nominal = low + times.low, nominal + times.nominal
        high = None if high is None or times.high is None else high + times.high
        if launch.opcode == "custom-call":
            calls[launch.custom_call_target or "?"] += times.nominal
        words[_word(launch, holders.get(launch))] += times.nominal
    others = words.pop("", 0)
    parts = [f"{word} x{count}" if count > 1 else word for word, count in words.items()]
    loops = sum(i.opcode == "while" for c in execution.order for i in c.instructions)
    if others:
        parts.append(f"{others} other kernel{'s' if others > 1 else ''}")
    if loops:
        parts.append(f"{loops} loop{'s' if loops > 1 else ''}")
    if session.get(ScoreArrays).attentions:
        parts.append("scores written to memory")
    exact = low == high
    return Route(
        Quantity(
            "kernels",
            nominal,
            basis=Basis.EXACT if exact else Basis.MODELLED,
            model=None if exact else "loops of unknown length run once",
        ),
        dict(calls),
        ", ".join(parts),
    )


def _word(launch: Instruction, product: Instruction | None) -> str:
    """What a launch is called; empty for what is neither a call nor a product."""
    if launch.opcode == "custom-call":
        target = launch.custom_call_target or "?"
        return next((word for start, word in _CALLS if target.startswith(start)), f"call {target}")
    if launch.opcode in _PRODUCTS:
        return _PRODUCTS[launch.opcode]
    if product is None:
        return ""
    if launch.name.startswith("gemm_fusion"):
        return "Triton product"
    return "fused product"


def memory_of(xla: Mapping[str, int] | None) -> tuple[Quantity, Quantity]:
    """Temporaries and peak of one call, from what XLA says of the executable.

    The peak is what is held at once at most: arguments, results and temporaries.
    Where XLA's own peak is larger than that sum it stands, and the difference is
    temporaries; some backends leave theirs out of ``temp_size_in_bytes``.
    """
    if xla is None:
        return (
            Quantity("temporaries", None, Unit.BYTES, Basis.UNKNOWN),
            Quantity("peak", None, Unit.BYTES, Basis.UNKNOWN),
        )
    held = xla["argument_size_in_bytes"] + xla["output_size_in_bytes"] - xla["alias_size_in_bytes"]
    peak = max(held + xla["temp_size_in_bytes"], xla.get("peak_memory_in_bytes", 0))
    return (
        Quantity("temporaries", peak - held, Unit.BYTES, Basis.MODELLED, XLA_MEMORY),
        Quantity("peak", peak, Unit.BYTES, Basis.MODELLED, XLA_MEMORY),
    )
