"""HS904."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope import units
from hloscope.passes.duplicate_buffers import DuplicateBuffers
from hloscope.passes.memory_use import MemoryUse
from hloscope.pipeline.findings import Category, Finding, Quantity, Site, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["duplicate_live_buffers"]

_SHOWN = 5


@rule("HS904", "duplicate-live-buffers", Category.MEMORY)
def duplicate_live_buffers(
    duplicates: DuplicateBuffers, use: MemoryUse, limits: Limits
) -> Iterator[Finding]:
    """Finds the same data in two buffers at the peak.

    What it does:
        Compares the buffers that live at the peak. Two are the same if one is a
        copy of the other, or if both are computed by the same operation from
        the same arrays. Groups with at least ``memory_bytes`` (16 MiB) to spare
        are listed.

    Why it costs:
        One of them would do. XLA merges equal operations unless something keeps
        them apart: two results never share memory, and ``jax.checkpoint`` puts a
        barrier before what it computes again.

    Example:
            @jax.jit
            def init(key):
                params = draw(key)
                return {"params": params, "ema": params}     # stored twice

    Use instead:
        Return it once, and let Python hold the one array under both names, until
        a step makes two of it:

            params = init(key)
            state = {"params": params, "ema": params}

        Where ``jax.checkpoint`` computes something again while its first value
        still lives, let the policy save it, or take its other use inside.
    """
    for group in duplicates.groups:
        spare = sum(held.size for held in group[1:])
        if spare < limits.memory_bytes:
            continue
        share = spare / use.peak if use.peak else 0.0
        # The copy is what can go; an argument comes first only if it is the source.
        first = next((held for held in group if held.instruction.opcode != "parameter"), group[0])
        location = first.origin.location
        cost = Quantity("bytes to spare", spare, Unit.BYTES)
        yield Finding(
            code="HS904",
            name="duplicate-live-buffers",
            category=Category.MEMORY,
            severity=limits.severity(share),
            message=f"{len(group)} buffers hold the same {first.shape.without_layout()}",
            site=Site(
                computation=first.instruction.computation.name,
                instruction=first.instruction.name,
                op_name=first.origin.op_name or None,
                file=location.file if location else None,
                line=location.line if location else None,
            ),
            evidence=(
                cost,
                Quantity("share of the peak", share, Unit.SHARE, use.basis, use.model),
            ),
            cost=cost,
            fix="Compute the value once and hand it on.",
            notes=tuple(
                f"{held.instruction.name} ({held.instruction.opcode}), {units.byte_size(held.size)}"
                for held in group[:_SHOWN]
            ),
        )
