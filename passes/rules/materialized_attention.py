"""HS501."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.chips import Chip, ChipKind
from hloscope.ir import Instruction
from hloscope.passes.buffer_kinds import Phase, phase_of
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.flops.counts import result_of
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import HeldBuffer, MemoryUse
from hloscope.passes.score_traffic import ScoreBytes, ScoreTraffic
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["materialized_attention"]

_MODEL = "score arrays in whole, once a launch"
_ONCE = "; each branch taken, loops of unknown length run once"
_CUDNN_CAPABILITY = (8, 0)  # cuDNN's fused attention starts with Ampere


@rule("HS501", "materialized-attention", Category.REDUNDANT_WORK)
def materialized_attention(
    score_traffic: ScoreTraffic,
    traffic: Traffic,
    use: MemoryUse | None,
    chip: Chip | None,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds attention whose scores are written to memory, where a fused kernel keeps them on chip.

    What it does:
        Looks for a batched product whose result goes through a softmax into another
        batched product, with nothing but element-by-element operations in between, or,
        in programs of a backward pass alone, through a softmax's gradient. All
        arrays of the scores' size along the way and in its gradient are followed: what
        the launches read and write of them in device memory is summed, loops multiplied
        out, and so is what the forward pass saves for the backward pass. Attentions of
        one size are one finding, from ``traffic_share`` (1%) of the program's memory
        traffic on and from ``attention_keys`` (512) keys on. What stays in a TPU's
        vector memory is not counted, and fused attention (cuDNN's, a Pallas kernel) is
        not found. On a CPU, which has no such kernel, it is a note.

    Why it costs:
        The scores grow with the square of the length, and softmax passes over them
        several times, often in float32. From about a thousand keys on they outweigh all
        else that attention moves, and saved for the backward pass they can be
        most of a step's memory. A fused kernel works through them in tiles that
        never leave the chip, and its gradient computes them again.

    Example:
            scores = jnp.einsum("bthd,bshd->bhts", q, k) / math.sqrt(depth)
            weights = jax.nn.softmax(scores)                  # [b, h, t, s] in memory
            out = jnp.einsum("bhts,bshd->bthd", weights, v)

    Use instead:
        On an NVIDIA GPU cuDNN's kernel, in bfloat16 or float16:

            out = jax.nn.dot_product_attention(q, k, v, implementation="cudnn")

        On a TPU a Pallas kernel, flash or splash attention:

            from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
    """
    total = traffic.total()
    for row in score_traffic.rows:
        share = row.total / total if total else 0.0
        if row.scores.keys >= limits.attention_keys and row.total and share >= limits.traffic_share:
            yield _finding(row, share, use, chip, limits)


def _finding(
    row: ScoreBytes, share: float, use: MemoryUse | None, chip: Chip | None, limits: Limits
) -> Finding:
    scores = row.scores
    first = scores.products[0]
    model = _MODEL if row.exact else _MODEL + _ONCE
    cost = Quantity("score bytes moved", row.total, Unit.BYTES, Basis.MODELLED, model)
    evidence = [
        cost,
        Quantity("share of memory traffic", share, Unit.SHARE, Basis.MODELLED, model),
    ]
    if row.forward:
        evidence.append(Quantity("forward", row.forward, Unit.BYTES, Basis.MODELLED, model))
    if row.backward:
        evidence.append(Quantity("backward", row.backward, Unit.BYTES, Basis.MODELLED, model))
    if row.forward and row.backward:
        evidence.append(
            Quantity("saved for the backward pass", row.saved, Unit.BYTES, Basis.MODELLED, model)
        )
    held = _at_peak(row, use)
    if use is not None and held:
        evidence.append(Quantity("of the peak", held / use.peak, Unit.SHARE, use.basis, use.model))
    lines = dict.fromkeys(
        f"{location.file}:{location.line}"
        for product in scores.products
        if (location := product.location) is not None
    )
    notes = [
        f"scores: {scores.heads} heads (times batch) of {scores.keys} keys, {scores.queries} "
        f"queries to each head of keys, depth {scores.depth}; first {result_of(first).dtype}, "
        f"{first.name}"
    ]
    if scores.backward_only:
        notes.append("the gradient alone is in this program")
    if len(lines) > 1:
        notes.append(f"the same size at {', '.join(list(lines)[1:4])}")
    on_cpu = chip is not None and chip.kind is ChipKind.CPU
    if on_cpu:
        notes.append("JAX has no fused attention for CPUs: compile for the chip that it runs on")
    return Finding(
        code="HS501",
        name="materialized-attention",
        category=Category.REDUNDANT_WORK,
        severity=Severity.NOTE if on_cpu else limits.severity(share),
        message="attention writes its scores to memory",
        site=instruction_site(first, line_of=_with_a_line(scores.arrays)),
        evidence=tuple(evidence),
        cost=cost,
        fix=_fix(row, chip),
        notes=tuple(notes),
    )


def _with_a_line(arrays: frozenset[Instruction]) -> Instruction | None:
    """What of the scores has a line of Python; products that XLA pads lose theirs."""
    named = [array for array in arrays if array.location is not None]
    return min(
        named,
        key=lambda array: (phase_of(array.op_name) is Phase.BACKWARD, array.name),
        default=None,
    )


def _at_peak(row: ScoreBytes, use: MemoryUse | None) -> int:
    """Bytes of the scores among what is alive at the peak; stacks over layers are not seen."""
    if use is None or not use.peak:
        return 0
    return sum(
        held.size
        for held in use.alive
        if held.space is Space.DEVICE and _holds_scores(held, row.scores.arrays)
    )


def _holds_scores(held: HeldBuffer, arrays: frozenset[Instruction]) -> bool:
    """Whether it is one of the arrays; of a launch with several results by its size."""
    if held.instruction in arrays:
        return True
    elements = held.shape.num_elements
    members = (user for user in held.instruction.users if user.opcode == "get-tuple-element")
    return any(one in arrays and one.shape.num_elements == elements for one in members)


def _fix(row: ScoreBytes, chip: Chip | None) -> str:
    cudnn = 'jax.nn.dot_product_attention(..., implementation="cudnn") in bfloat16 or float16'
    pallas = "a Pallas kernel (flash or splash attention in jax.experimental.pallas.ops.tpu)"
    if chip is None or chip.kind is ChipKind.CPU:
        return f"On an NVIDIA GPU use {cudnn}; on a TPU {pallas}."
    if chip.kind is ChipKind.TPU:
        return f"Use {pallas}."
    if chip.gpu is not None and chip.gpu.compute_capability < _CUDNN_CAPABILITY:
        return (
            "cuDNN's fused attention does not run on this chip; work through the keys in blocks "
            "(a scan with a running maximum and sum), or use a Pallas kernel."
        )
    depth = row.scores.depth
    if depth > 128:
        cudnn += f", if cuDNN takes heads of {depth}"
    return f"Use {cudnn}."
