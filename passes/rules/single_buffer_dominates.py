"""HS902."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.buffer_kinds import BufferKind
from hloscope.passes.memory_use import MemoryUse
from hloscope.pipeline.findings import Category, Finding, Quantity, Site, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["single_buffer_dominates"]

_RESIDENT = (BufferKind.PARAMETER, BufferKind.OUTPUT, BufferKind.CONSTANT)


@rule("HS902", "single-buffer-dominates", Category.MEMORY)
def single_buffer_dominates(use: MemoryUse, limits: Limits) -> Iterator[Finding]:
    """Finds one temporary array that makes up much of the peak.

    What it does:
        Looks at the buffers that live at the peak and lists temporaries that
        hold at least ``memory_share`` (20%) of it each, and at least
        ``memory_bytes`` (16 MiB). Arguments, results and constants are left
        out: they are there whatever the step does.

    Why it costs:
        The peak decides which batch and which model fit, and here one line of
        Python decides the peak. Typical are logits over a whole vocabulary,
        attention scores of all pairs, and one-hot matrices.

    Example:
            logits = h.astype(jnp.float32) @ head          # [batch, length, 50304]
            loss = cross_entropy(logits, labels).mean()

    Use instead:
        Work on a piece at a time, and let the backward pass compute it again:

            @jax.checkpoint
            def piece(total, xs):
                h, labels = xs
                return total + cross_entropy(h @ head, labels).sum(), None

            total, _ = jax.lax.scan(piece, 0.0, (pieces_of(h), pieces_of(labels)))
    """
    if not use.peak:
        return
    for held in use.alive:
        if held.kind in _RESIDENT or held.size < limits.memory_bytes:
            continue
        share = held.size / use.peak
        if share < limits.memory_share:
            continue
        location = held.origin.location
        size = Quantity("bytes", held.size, Unit.BYTES)
        yield Finding(
            code="HS902",
            name="single-buffer-dominates",
            category=Category.MEMORY,
            severity=limits.severity(share),
            message=f"one array {held.shape.without_layout()} is much of the peak",
            site=Site(
                computation=held.instruction.computation.name,
                instruction=held.instruction.name,
                op_name=held.origin.op_name or None,
                file=location.file if location else None,
                line=location.line if location else None,
            ),
            evidence=(
                size,
                Quantity("share of the peak", share, Unit.SHARE, use.basis, use.model),
                Quantity("peak", use.peak, Unit.BYTES, use.basis, use.model),
            ),
            cost=size,
            fix="Compute it in pieces, in a narrower dtype, or not at all (fused attention, loss).",
            notes=(f"kind: {held.kind}",),
        )
