"""HS902."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope import units
from hloscope.chips import Chip
from hloscope.passes.buffer_kinds import BufferKind
from hloscope.passes.memory_findings import copied_argument, held_site, memory_severity
from hloscope.passes.memory_use import HeldBuffer, MemoryUse
from hloscope.passes.residuals import Residual, Residuals
from hloscope.pipeline.findings import Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["single_buffer_dominates"]

_RESIDENT = (BufferKind.PARAMETER, BufferKind.OUTPUT, BufferKind.CONSTANT)

_FIXES = {
    BufferKind.RESIDUAL: (
        "Let the backward pass compute it again (jax.checkpoint), or compute it in pieces."
    ),
    BufferKind.GRADIENT: (
        "A gradient is as large as what it belongs to: shard that over more devices, or reduce "
        "and apply it a layer at a time."
    ),
    BufferKind.COLLECTIVE: (
        "Exchange a layer or a piece at a time, so that only that is whole at once."
    ),
    BufferKind.WORKSPACE: (
        "The library chose an algorithm that needs this scratch space; another shape, layout or "
        "dtype of the operation needs less."
    ),
    BufferKind.TEMPORARY: (
        "Compute it in pieces, in a narrower dtype, or not at all (fused attention, loss)."
    ),
}


@rule("HS902", "single-buffer-dominates", Category.MEMORY)
def single_buffer_dominates(
    use: MemoryUse, residuals: Residuals, limits: Limits, chip: Chip | None
) -> Iterator[Finding]:
    """Finds one temporary array that makes up much of the peak.

    What it does:
        Looks at the buffers that live at the peak and lists temporaries that
        hold at least ``memory_share`` (20%) of it each, and at least
        ``memory_bytes`` (16 MiB). Arguments, results and constants are left
        out: they are there whatever the step does. On a chip of which more than
        half stays free it is a note.

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
        size = Quantity("bytes", held.size, Unit.BYTES)
        residual = residuals.of(held.buffer)
        yield Finding(
            code="HS902",
            name="single-buffer-dominates",
            category=Category.MEMORY,
            severity=memory_severity(limits, share, use, chip),
            message=f"one array {held.shape.without_layout()} is much of the peak",
            site=held_site(held, residual),
            evidence=(
                size,
                Quantity("share of the peak", share, Unit.SHARE, use.basis, use.model),
                Quantity("peak", use.peak, Unit.BYTES, use.basis, use.model),
            ),
            cost=size,
            fix=_fix(held),
            notes=tuple(_notes(held, residual)),
        )


def _fix(held: HeldBuffer) -> str:
    if copied_argument(held) is not None:
        return (
            "Hand the argument in as it is needed (its dtype, layout and sharding), or convert "
            "a part of it where it is used."
        )
    return _FIXES.get(held.kind, _FIXES[BufferKind.TEMPORARY])


def _notes(held: HeldBuffer, residual: Residual | None) -> Iterator[str]:
    argument = copied_argument(held)
    if argument is not None:
        yield f"kind: {held.kind}, a copy, a cast or a part of {argument.op_name or argument.name}"
    else:
        yield f"kind: {held.kind}"
    if residual is not None and residual.made.layers is not None:
        layers = residual.made.layers
        each = units.byte_size(held.size // layers)
        yield f"a stack that a loop of {layers} iterations fills, {each} each"
