"""HS903."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hloscope import units
from hloscope.chips import Chip
from hloscope.passes.buffer_kinds import BufferKind
from hloscope.passes.memory_use import MemoryUse
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Site, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["residuals_dominate"]

_SHOWN = 5


@rule("HS903", "residuals-dominate", Category.MEMORY)
def residuals_dominate(use: MemoryUse, limits: Limits, chip: Chip | None) -> Iterator[Finding]:
    """Finds a peak that is mostly activations kept for the backward pass.

    What it does:
        Adds up what lives at the peak, was written in the forward pass and is
        read in the backward pass, by the transforms in the scope names. It is
        reported from ``residual_share`` (half) of the peak and ``memory_bytes``
        (16 MiB) on, with the lines that keep most.

    Why it costs:
        These arrays are there only so that they need not be computed twice.
        They grow with the batch, the length and the depth, and are usually what
        keeps a larger batch from fitting. This is a choice rather than a
        mistake: as long as the program fits with room to spare, keeping them
        is the faster one, and below half of the chip's memory it is a note.

    Example:
            for layer in params:
                h = block(layer, h)        # scores, masks and both sides of the MLP are kept

    Use instead:
        Keep the products and compute the rest again, or keep what you name:

            block = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)
    """
    saved = [held for held in use.alive if held.kind is BufferKind.RESIDUAL]
    total = sum(held.size for held in saved)
    if total < limits.memory_bytes or total < limits.residual_share * use.peak:
        return
    lines: Counter[str] = Counter()
    for held in saved:
        lines[str(held.origin.location or held.instruction.name)] += held.size
    first = saved[0]
    location = first.origin.location
    cost = Quantity("bytes kept", total, Unit.BYTES, use.basis, use.model)
    yield Finding(
        code="HS903",
        name="residuals-dominate",
        category=Category.MEMORY,
        severity=Severity.NOTE if _is_roomy(use, chip) else Severity.WARNING,
        message="most of the peak is kept for the backward pass",
        site=Site(
            computation=first.instruction.computation.name,
            instruction=first.instruction.name,
            op_name=first.origin.op_name or None,
            file=location.file if location else None,
            line=location.line if location else None,
        ),
        evidence=(
            cost,
            Quantity("arrays", len(saved)),
            Quantity("share of the peak", total / use.peak, Unit.SHARE, use.basis, use.model),
        ),
        cost=cost,
        fix="Wrap the layer in jax.checkpoint with a policy that keeps less.",
        notes=tuple(f"{line}: {units.byte_size(size)}" for line, size in lines.most_common(_SHOWN)),
    )


def _is_roomy(use: MemoryUse, chip: Chip | None) -> bool:
    """Whether more than half of the chip's memory is free at the peak."""
    return chip is not None and chip.memory_bytes is not None and 2 * use.peak < chip.memory_bytes
