"""HS901."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope import units
from hloscope.chips import Chip
from hloscope.errors import Unavailable
from hloscope.passes.buffer_kinds import BufferKind
from hloscope.passes.heap_block import HeapBlock, needed_memory
from hloscope.passes.memory_use import MemoryUse
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Site, Unit
from hloscope.pipeline.rules import rule

__all__ = ["peak_over_chip"]


@rule("HS901", "peak-over-chip", Category.MEMORY)
def peak_over_chip(use: MemoryUse, block: HeapBlock | None, chip: Chip) -> Iterator[Finding]:
    """Finds a program whose peak is more than the chip's memory.

    What it does:
        Adds arguments, results, constants and the block that holds the
        temporaries, which is what lives at the same time and the gaps between,
        and compares that with the memory of the chip. It says what the peak is
        made of. Only a scheduled module can
        be looked at, and the chip has to be known.

    Why it costs:
        The program does not run: it stops with an out-of-memory error, often
        after minutes of compiling and loading.

    Example:
            def loss(params, tokens):                  # 64 layers, nothing recomputed
                for layer in params:
                    h = block(layer, h)                # every activation is kept
                return cross_entropy(h @ head, labels) # logits in float32

    Use instead:
        Keep less for the backward pass, or spread it over more devices:

            block = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)

        A smaller batch with gradient accumulation, donated state and a loss
        that is computed in pieces help as well.
    """
    memory = chip.memory_bytes
    if memory is None:
        raise Unavailable(f"the memory of {chip.name} is not known")
    needed = needed_memory(use, block)
    if needed <= memory:
        return
    model = use.model if block is None or use.basis is Basis.EXACT else block.model
    over = Quantity("bytes too many", needed - memory, Unit.BYTES, use.basis, model)
    first = use.alive[0] if use.alive else None
    under = use.under[-1] if use.under else None
    location = under.location if under is not None else None
    saved = use.of_kind(BufferKind.RESIDUAL)
    yield Finding(
        code="HS901",
        name="peak-over-chip",
        category=Category.MEMORY,
        severity=Severity.ERROR,
        message=f"the program does not fit {chip.name}",
        site=Site(
            computation=under.computation.name if under is not None else None,
            instruction=under.name if under is not None else None,
            op_name=(under.op_name or None) if under is not None else None,
            file=location.file if location else None,
            line=location.line if location else None,
        ),
        evidence=(
            Quantity("peak", use.peak, Unit.BYTES, use.basis, use.model),
            Quantity("allocated", needed, Unit.BYTES, use.basis, model),
            Quantity("memory of the chip", memory, Unit.BYTES),
            Quantity("resident", use.resident, Unit.BYTES),
            Quantity("saved for backward", saved, Unit.BYTES, use.basis, use.model),
        ),
        cost=over,
        fix=(
            "Recompute activations with jax.checkpoint, donate the state, shrink the batch, "
            "or use more devices."
        ),
        notes=(f"the largest buffer is {first.instruction.name}, {units.byte_size(first.size)}",)
        if first is not None
        else (),
    )
