"""HS904."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope import units
from hloscope.chips import Chip
from hloscope.passes.buffer_kinds import BufferKind
from hloscope.passes.duplicate_buffers import DuplicateBuffers
from hloscope.passes.memory_findings import held_site, memory_severity
from hloscope.passes.memory_use import HeldBuffer, MemoryUse
from hloscope.pipeline.findings import Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["duplicate_live_buffers"]

_SHOWN = 5


@rule("HS904", "duplicate-live-buffers", Category.MEMORY)
def duplicate_live_buffers(
    duplicates: DuplicateBuffers, use: MemoryUse, limits: Limits, chip: Chip | None
) -> Iterator[Finding]:
    """Finds the same data in two buffers at the peak.

    What it does:
        Compares the buffers that live at the peak. Two are the same if one is a
        copy of the other, or if both are computed by the same operation from
        the same arrays, in the same layout and memory. XLA's own copy of an
        argument counts only as a result of the program: other such copies are
        there because something must not write to the argument. Groups with at
        least ``memory_bytes`` (16 MiB) to spare are listed; on a chip of which
        more than half stays free they are notes.

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
        first = next((held for held in group if held.kind is not BufferKind.PARAMETER), group[0])
        cost = Quantity("bytes to spare", spare, Unit.BYTES)
        yield Finding(
            code="HS904",
            name="duplicate-live-buffers",
            category=Category.MEMORY,
            severity=memory_severity(limits, share, use, chip),
            message=f"{len(group)} buffers hold the same {first.shape.without_layout()}",
            site=held_site(first),
            evidence=(
                cost,
                Quantity("share of the peak", share, Unit.SHARE, use.basis, use.model),
            ),
            cost=cost,
            fix=_fix(group),
            notes=tuple(
                f"{held.instruction.name} ({held.kind}), {units.byte_size(held.size)}"
                for held in group[:_SHOWN]
            ),
        )


def _fix(group: Sequence[HeldBuffer]) -> str:
    kinds = [held.kind for held in group]
    if kinds.count(BufferKind.OUTPUT) > 1:
        return "Return the value once, and let Python hold the one array under both names."
    if BufferKind.OUTPUT in kinds and BufferKind.PARAMETER in kinds:
        return "Do not return an argument that stays as it is, or donate it."
    return "Compute the value once and hand it on; under jax.checkpoint, let the policy save it."
