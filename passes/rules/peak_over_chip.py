"""HS901."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope import units
from hloscope.chips import Chip
from hloscope.errors import Unavailable
from hloscope.passes.batch_fit import LINEAR, BatchFit
from hloscope.passes.buffer_kinds import BufferKind
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.heap_block import HeapBlock, needed_memory
from hloscope.passes.memory_use import MemoryUse
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Site, Unit
from hloscope.pipeline.rules import rule

__all__ = ["peak_over_chip"]

_SHOWN_KINDS = 4
_WORTH = 0.1
"""Share of what is too much from which a way to save some is worth naming."""


@rule("HS901", "peak-over-chip", Category.MEMORY)
def peak_over_chip(
    use: MemoryUse, block: HeapBlock | None, chip: Chip, fit: BatchFit | None
) -> Iterator[Finding]:
    """Finds a program whose peak is more than the chip's memory.

    What it does:
        Adds arguments, results, constants and the block that holds the
        temporaries, which is what lives at the same time and the gaps between,
        and compares that with the memory of the chip. It says what the peak is
        made of and, where an argument is known to be the batch, which batch would
        fit by a line through the one batch that was compiled. Only a scheduled
        module can be looked at, and the chip has to be known.

    Why it costs:
        The program does not run: it stops with an out-of-memory error, often
        after minutes of compiling and loading. A TPU's compiler notices itself
        and refuses to compile; hloscope then has no module to look at and hands
        on what the compiler says of the memory that it needs.

    Example:
            def loss(params, tokens):                  # 64 layers, nothing recomputed
                for layer in params:
                    h = block(layer, h)                # every activation is kept
                return cross_entropy(h @ head, labels) # logits in float32

    Use instead:
        Keep less for the backward pass, or spread it over more devices:

            block = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)

        A smaller batch with gradient accumulation, donated state and a loss
        that is computed in pieces help as well. Where arguments and results
        alone are too much, only more devices, narrower dtypes and donation do.
    """
    memory = chip.memory_bytes
    if memory is None:
        raise Unavailable(f"the memory of {chip.name} is not known")
    needed = needed_memory(use, block)
    if needed <= memory:
        return
    model = use.model if block is None or use.basis is Basis.EXACT else block.model
    under = use.under[-1] if use.under else None
    kinds = {kind: use.of_kind(kind) for kind in BufferKind}
    evidence = [
        Quantity("peak", use.peak, Unit.BYTES, use.basis, use.model),
        Quantity("allocated", needed, Unit.BYTES, use.basis, model),
        Quantity("memory of the chip", memory, Unit.BYTES),
        Quantity("resident", use.resident, Unit.BYTES),
        Quantity(
            "saved for backward", kinds[BufferKind.RESIDUAL], Unit.BYTES, use.basis, use.model
        ),
    ]
    if fit is not None:
        evidence += [
            Quantity("batch", fit.batch),
            Quantity("largest batch", fit.largest, Unit.COUNT, Basis.MODELLED, LINEAR),
        ]
    yield Finding(
        code="HS901",
        name="peak-over-chip",
        category=Category.MEMORY,
        severity=Severity.ERROR,
        message=f"the program does not fit {chip.name}",
        site=instruction_site(under) if under is not None else Site(),
        evidence=tuple(evidence),
        cost=Quantity("bytes too many", needed - memory, Unit.BYTES, use.basis, model),
        fix=_fix(use, needed, memory, kinds[BufferKind.RESIDUAL], fit),
        notes=tuple(_notes(use, kinds)),
    )


def _fix(use: MemoryUse, needed: int, memory: int, saved: int, fit: BatchFit | None) -> str:
    """What can bring the peak down, by what it is made of."""
    if use.resident > memory:
        # No policy and no smaller temporary changes what lives throughout.
        smaller = ", or shrink the batch" if fit is not None and fit.largest > 0 else ""
        return (
            "Arguments, results and constants alone are more than the chip has: shard the state "
            f"over more devices, keep it in a narrower dtype, or donate it{smaller}."
        )
    worth = (needed - memory) * _WORTH
    ways = []
    if saved > worth:
        ways.append(
            f"recompute activations with jax.checkpoint ({units.byte_size(saved)} are kept)"
        )
    if use.outputs > worth:
        ways.append(f"donate the state ({units.byte_size(use.outputs)} of results lie apart)")
    if fit is not None and fit.largest > 0:
        ways.append(f"shrink the batch from {fit.batch} to about {fit.largest}")
    ways.append("use more devices")
    text = ", or ".join(ways)
    return f"{text[0].upper()}{text[1:]}."


def _notes(use: MemoryUse, kinds: dict[BufferKind, int]) -> Iterator[str]:
    order = sorted(kinds.items(), key=lambda item: -item[1])
    made_of = [f"{kind} {units.byte_size(size)}" for kind, size in order[:_SHOWN_KINDS] if size]
    if made_of:
        yield f"the peak is made of {', '.join(made_of)}"
    if use.alive:
        first = use.alive[0]
        where = f" from {first.origin.location}" if first.origin.location is not None else ""
        name = first.origin.op_name if first.kind is BufferKind.PARAMETER else ""
        yield (
            f"the largest buffer is {name or first.instruction.name}, "
            f"{first.shape.without_layout()}, {units.byte_size(first.size)}{where}"
        )
