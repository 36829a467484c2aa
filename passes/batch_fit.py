"""Which batch would fit a chip, by a model that is linear in the batch."""

from __future__ import annotations

from dataclasses import dataclass

from hloscope.chips import Chip
from hloscope.errors import Unavailable
from hloscope.ir import Module, Signature
from hloscope.ir.signature import Role
from hloscope.passes.buffer_kinds import BufferKind
from hloscope.passes.entry_slots import parameter_slots
from hloscope.passes.heap_block import HeapBlock, needed_memory
from hloscope.passes.memory_use import MemoryUse
from hloscope.pipeline.analyses import analysis

__all__ = ["LINEAR", "BatchFit", "fit_batch"]

LINEAR = "linear in the batch"


@dataclass(frozen=True, slots=True)
class BatchFit:
    """What would grow with the batch, and how far it could.

    Attributes:
        batch: Size of the batch now, over all devices.
        fixed: Bytes that stay: state, constants, gradients at the peak.
        growing: Bytes that grow: the batch, the block of temporaries but for
            gradients, and results that look like no argument.
        largest: The largest batch that fits; 0 where not even one does.
    """

    batch: int
    fixed: int
    growing: int
    largest: int


@analysis
def fit_batch(
    module: Module, signature: Signature, use: MemoryUse, block: HeapBlock | None, chip: Chip
) -> BatchFit:
    """Solve ``fixed + growing x batch / batch now <= memory of the chip``.

    Raises:
        Unavailable: The chip's memory is not known, or no argument is known to
            be the batch, or its arrays have no leading size in common.
    """
    if chip.memory_bytes is None:
        raise Unavailable(f"the memory of {chip.name} is not known")
    slots = parameter_slots(module)
    leaves = [
        leaf
        for leaf in signature.inputs
        if leaf.role is Role.BATCH and leaf.parameter is not None and leaf.parameter < len(slots)
    ]
    sizes = {leaf.dimensions[0] for leaf in leaves if leaf.dimensions}
    if len(sizes) != 1:
        raise Unavailable("no argument is known to be the batch, or its arrays differ in size")
    batch = sizes.pop()
    if batch < 1:
        raise Unavailable("the batch is empty")
    arrays = sum(
        slots[leaf.parameter].shape.padded_bytes for leaf in leaves if leaf.parameter is not None
    )
    known = {(slot.shape.dtype, slot.shape.dimensions) for slot in slots}
    arrays += sum(
        buffer.size
        for buffer in use.ranges.outputs
        if (buffer.shape.dtype, buffer.shape.dimensions) not in known and buffer.shape.dimensions
    )
    gradients = use.of_kind(BufferKind.GRADIENT)
    needed = needed_memory(use, block)
    growing = needed - use.resident - gradients + arrays
    fixed = needed - growing
    room = chip.memory_bytes - fixed
    largest = max(room * batch // growing, 0) if growing > 0 else batch
    return BatchFit(batch, fixed, growing, largest)
