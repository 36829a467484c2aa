"""The one block that XLA would lay the temporaries out in, gaps and alignment included.

Temporaries share one block of memory. Which offset each gets is decided ahead
of time, by a heap that never moves anything, so gaps stay between buffers that
live at different times and the block is larger than what lives at once.

CPUs and GPUs: XLA's ``GlobalDecreasingSizeBestFitHeap`` (xla/service/
heap_simulator): buffers by decreasing size, of equal ones the longest-lived
first, each into the smallest gap that is free while it lives. TPUs: the offsets
in dumped buffer assignments of libtpu 0.0.42 are those of a best fit in the
order of the schedule, in multiples of 16 KiB, with one such multiple apart for
each tuple's table of pointers, for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hloscope.chips import Chip, ChipKind
from hloscope.errors import Unavailable
from hloscope.ir import Module
from hloscope.passes.lifetimes import Lifetime, find_lifetimes
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space, has_on_chip_memory
from hloscope.passes.memory_use import MemoryUse
from hloscope.passes.pointer_tables import made_tuples, table_bytes
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Basis

__all__ = [
    "BY_SIZE",
    "IN_ORDER",
    "MOST_BUFFERS",
    "HeapBlock",
    "Placement",
    "find_heap_block",
    "needed_memory",
    "place",
]

BY_SIZE = "best-fit heap by decreasing size"
IN_ORDER = "best-fit heap in the order of the schedule"

MOST_BUFFERS = 20_000
"""Buffers that are laid out at most: the work grows with the square of their number."""

_MOST_BYTES = 2**60  # offsets are kept in 64 bits
_CPU_ALIGNMENT = 64
_GPU_ALIGNMENT = 256
_TPU_ALIGNMENT = 16 * 1024
_TPU_LEAST = 512 * 1024  # of scalars and tables alone, the analysis was seen to leave out less


@dataclass(frozen=True, slots=True)
class Placement:
    """Where buffers lie in a block, in bytes.

    Attributes:
        offsets: Of each buffer, in the order in which they were given.
        size: Where the last one ends.
    """

    offsets: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class HeapBlock:
    """The block of device memory that holds all temporaries.

    Attributes:
        size: Bytes of the block.
        alive: Bytes of temporaries that live at once, at most.
        reported: What XLA's memory analysis calls temporaries: the block; on
            TPUs the gaps are in that figure twice.
        alignment: What each offset is a multiple of.
        model: How buffers were placed.
    """

    size: int
    alive: int
    reported: int
    alignment: int
    model: str

    @property
    def gaps(self) -> int:
        """Bytes of the block that no temporary lives in even at the peak."""
        return self.size - self.alive


def needed_memory(use: MemoryUse, block: HeapBlock | None) -> int:
    """Bytes that a device has to give: what is resident, and the whole block.

    Where the block is not known, or XLA's own is in ``use`` already, the peak.
    """
    if block is None or use.basis is Basis.EXACT:
        return use.peak
    return use.resident + block.size


@analysis
def find_heap_block(module: Module, ranges: LiveRanges, chip: Chip | None) -> HeapBlock:
    """Lay the temporaries of device memory out as XLA would.

    The chip says whether offsets are aligned for CPUs or GPUs; without one that
    is read from the module's header.

    Raises:
        Unavailable: The module is not scheduled, or its buffers are too many or
            too large.
    """
    lifetimes = find_lifetimes(ranges, Space.DEVICE)
    if len(lifetimes) > MOST_BUFFERS:
        raise Unavailable(
            f"{len(lifetimes):,} temporaries are more than the {MOST_BUFFERS:,} that are laid out"
        )
    if sum(one.size for one in lifetimes) > _MOST_BYTES:
        raise Unavailable("the temporaries are larger than any address space")
    alive = ranges.temporaries()
    if has_on_chip_memory(module):
        if not lifetimes:
            return HeapBlock(0, 0, 0, _TPU_ALIGNMENT, IN_ORDER)  # nothing reads the tables then
        tables = _tables(ranges, chip)
        rounded = [one._replace(size=_rounded(one.size, _TPU_ALIGNMENT)) for one in lifetimes]
        order = sorted(range(len(rounded)), key=lambda k: (rounded[k].first, -rounded[k].size))
        size = place(rounded, order, _TPU_ALIGNMENT).size
        size += sum(_rounded(table, _TPU_ALIGNMENT) for table in tables)
        reported = 2 * size - alive - sum(tables)
        if size < _TPU_LEAST and max(one.size for one in rounded) <= _TPU_ALIGNMENT:
            reported = 0
        return HeapBlock(size, alive, reported, _TPU_ALIGNMENT, IN_ORDER)
    alignment = _GPU_ALIGNMENT if _is_for_gpu(module, chip) else _CPU_ALIGNMENT
    lengths = _lengths(lifetimes)
    order = sorted(
        range(len(lifetimes)), key=lambda k: (-lifetimes[k].size, -lengths[k], lifetimes[k].first)
    )
    size = place(lifetimes, order, alignment).size
    return HeapBlock(size, alive, size, alignment, BY_SIZE)


def place(lifetimes: Sequence[Lifetime], order: Sequence[int], alignment: int) -> Placement:
    """Give each buffer the smallest gap that is free as long as it lives, else the end.

    Args:
        lifetimes: The buffers.
        order: Which is placed first, second and so on.
        alignment: What each offset is a multiple of, in bytes.

    Returns:
        Offsets such that no two buffers that live at the same time overlap.
    """
    count = sum(1 + len(one.holes) for one in lifetimes)
    firsts, lasts, begins, ends = (np.zeros(count, dtype=np.int64) for _ in range(4))
    offsets = [0] * len(lifetimes)
    block = placed = 0
    for number in order:
        one = lifetimes[number]
        parts = one.parts()
        together = np.zeros(placed, dtype=bool)
        for first, last in parts:
            together |= (firsts[:placed] <= last) & (lasts[:placed] >= first)
        offset = _fit(begins[:placed][together], ends[:placed][together], one.size)
        offsets[number] = offset
        block = max(block, offset + one.size)
        for first, last in parts:
            firsts[placed], lasts[placed] = first, last
            begins[placed], ends[placed] = offset, _rounded(offset + one.size, alignment)
            placed += 1
    return Placement(tuple(offsets), block)


def _fit(
    begins: np.ndarray[tuple[int], np.dtype[np.int64]],
    ends: np.ndarray[tuple[int], np.dtype[np.int64]],
    size: int,
) -> int:
    """The offset for a buffer among those that it must not overlap.

    What is free behind the last of them counts as endless: it is taken where no
    gap is wide enough, even if a part of it is inside the block already.
    """
    if not len(begins):
        return 0
    order = np.argsort(begins)
    starts = np.concatenate(([0], np.maximum.accumulate(ends[order])))
    gaps = begins[order] - starts[:-1]
    wide = np.flatnonzero(gaps >= size)
    return int(starts[wide[np.argmin(gaps[wide])]] if len(wide) else starts[-1])


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _lengths(lifetimes: Sequence[Lifetime]) -> list[int]:
    """How long each lives on the clock of XLA's heap, which ticks when one begins or ends."""
    events = [(one.first, 0, one.last, k) for k, one in enumerate(lifetimes)]
    events += [(one.last, 1, one.first, k) for k, one in enumerate(lifetimes)]
    events.sort()
    lengths = [0] * len(lifetimes)
    for tick, (_, ends, _, number) in enumerate(events):
        lengths[number] += tick if ends else -tick
    return lengths


def _is_for_gpu(module: Module, chip: Chip | None) -> bool:
    if chip is not None:
        return chip.kind is ChipKind.GPU
    return "fingerprint_before_lhs" in module.header.attributes.get("frontend_attributes", "")


def _tables(ranges: LiveRanges, chip: Chip | None) -> list[int]:
    """Bytes of the tables of pointers that a TPU program keeps: one for each tuple it makes."""
    return [
        table_bytes(elements, tpu=True, chip=chip)
        for frame in ranges.frames
        for instruction in frame.computation.instructions
        if instruction.shape.is_tuple
        for elements in made_tuples(instruction)
    ]
