"""How a GPU launched each kernel: registers, shared memory, grid, block, occupancy.

Tracers write it as one text an event, NVIDIA's and AMD's older one as
``regs:32 static_shared:0 dynamic_shared:0 grid:128,1,1 block:256,1,1 occ_pct:100``, AMD's
newer one as ``grid:16384,1,1 block:256,1,1 private_mem:0 group_mem:33792 occ_pct:0``.
AMD's older one filled some of it from memory that it never wrote: what no device can have
is unknown here, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hloscope.traces.codes import distinct
from hloscope.traces.recording import NONE
from hloscope.traces.timeline import Device

__all__ = ["KernelDetails", "KernelLaunch", "kernel_details_of", "parse_details"]

_FIELD = re.compile(r"(\w+):(\d{1,20}(?:,\d{1,20}){0,2})(?=\s|$)")

# The largest that any device has: an AMD wave's vector registers with its accumulators,
# the local memory of a Blackwell multiprocessor or an AMD compute unit in its largest mode,
# threads of a block, blocks of a grid in each direction (a 32-bit number).
_REGISTERS = 512
_SHARED = 1 << 18
_THREADS = 1024
_BLOCKS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """How a kernel was launched; ``None`` for what is not known.

    Attributes:
        registers: Of each thread.
        shared_bytes: Shared (AMD: group) memory of each block, static and dynamic.
        private_bytes: Scratch memory of each thread, which AMD says.
        grid: Blocks in three directions.
        block: Threads of a block in three directions.
        occupancy: Percentage of the threads that a multiprocessor could hold, by theory.
    """

    registers: int | None = None
    shared_bytes: int | None = None
    private_bytes: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    occupancy: float | None = None


@dataclass(frozen=True)
class KernelDetails:
    """The launches of a device's kernels.

    Attributes:
        launches: Of each kernel those that differ, by its name, the most frequent first,
            each with its number of events.
        impossible: Events with values that no device can have, by what the value is of.
    """

    launches: Mapping[str, tuple[tuple[KernelLaunch, int], ...]]
    impossible: Mapping[str, int]


def parse_details(text: str) -> tuple[KernelLaunch, tuple[str, ...]]:
    """One text.

    Returns:
        What is possible of it, and the names of what is not.
    """
    said = {name: [int(n) for n in numbers.split(",")] for name, numbers in _FIELD.findall(text)}
    wrong: list[str] = []

    def one(name: str, most: int, least: int = 0) -> int | None:
        values = said.get(name)
        if values is None:
            return None
        if len(values) == 1 and least <= values[0] <= most:
            return values[0]
        wrong.append(_WORDS[name])
        return None

    def three(name: str, most: int) -> tuple[int, int, int] | None:
        values = said.get(name)
        if values is None:
            return None
        if len(values) == 3 and min(values) > 0 and max(values) <= most:
            return values[0], values[1], values[2]
        wrong.append(_WORDS[name])
        return None

    registers = one("regs", _REGISTERS)
    shared = [one(name, _SHARED) for name in ("static_shared", "dynamic_shared") if name in said]
    if "regs" in said and registers is None and shared:
        # Both are of the same memory, which was never written: two halves of a pointer.
        shared = [None]
        wrong.append(_WORDS["static_shared"])
    if "group_mem" in said:
        shared.append(one("group_mem", _SHARED))
    total = None if not shared or None in shared else sum(each or 0 for each in shared)
    if total is not None and total > _SHARED:
        total = None
        wrong.append(_WORDS["static_shared"])
    block = three("block", _THREADS)
    if block is not None and prod(block) > _THREADS:
        block = None
        wrong.append(_WORDS["block"])
    occupancy = one("occ_pct", 100)
    launch = KernelLaunch(
        # Tracers write 0 for registers and an occupancy that they do not know.
        registers=registers or None,
        shared_bytes=total,
        private_bytes=one("private_mem", 1 << 32),
        grid=three("grid", _BLOCKS),
        block=block,
        occupancy=float(occupancy) if occupancy else None,
    )
    return launch, tuple(dict.fromkeys(wrong))


_WORDS = {
    "regs": "registers",
    "static_shared": "shared memory",
    "dynamic_shared": "shared memory",
    "group_mem": "shared memory",
    "private_mem": "private memory",
    "grid": "grids",
    "block": "blocks",
    "occ_pct": "occupancies",
}


def kernel_details_of(device: Device) -> KernelDetails:
    """How each kernel of a device was launched: each text is parsed once.

    Args:
        device: The device.
    """
    labels, details = device.work.labels, device.work.details
    if not details.words:
        return KernelDetails({}, {})
    places, found = distinct((labels.codes, details.codes))
    counts = np.bincount(places, minlength=len(found)).tolist()
    parsed = [parse_details(word) for word in details.words]
    launches: dict[str, dict[KernelLaunch, int]] = {}
    impossible: dict[str, int] = {}
    for (label, detail), count in zip(found, counts, strict=True):
        if detail == NONE:
            continue
        launch, wrong = parsed[detail]
        for what in wrong:
            impossible[what] = impossible.get(what, 0) + count
        mine = launches.setdefault(labels.words[label], {})
        mine[launch] = mine.get(launch, 0) + count
    return KernelDetails({name: _by_number(found) for name, found in launches.items()}, impossible)


def _by_number(found: Mapping[KernelLaunch, int]) -> tuple[tuple[KernelLaunch, int], ...]:
    pairs: Sequence[tuple[KernelLaunch, int]] = sorted(found.items(), key=lambda pair: -pair[1])
    return tuple(pairs)
