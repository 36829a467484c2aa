"""The live ranges of a whole program on one clock.

The positions of a computation count only within it. A heap that serves the
whole program has to know which buffer of a loop's body lives together with
which buffer of the entry, so what is called is laid out where it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from hloscope.passes.live_ranges import Frame, LiveRanges, first_position
from hloscope.passes.memory_spaces import Space

__all__ = ["Lifetime", "find_lifetimes"]


class Lifetime(NamedTuple):
    """One buffer on the program's clock.

    Attributes:
        first: The first moment.
        last: The last one, inclusive.
        size: Bytes.
        holes: Stretches in between at which it holds nothing, both ends inclusive,
            in order.
    """

    first: int
    last: int
    size: int
    holes: tuple[tuple[int, int], ...] = ()

    def parts(self) -> list[tuple[int, int]]:
        """The stretches at which it holds something."""
        begins = [self.first, *(end + 1 for _, end in self.holes)]
        ends = [*(begin - 1 for begin, _ in self.holes), self.last]
        return list(zip(begins, ends, strict=True))


def find_lifetimes(ranges: LiveRanges, space: Space) -> list[Lifetime]:
    """When each temporary of one memory lives; linear in what the frames hold.

    The moments of a callee lie between those of its operands and its results.
    A computation that is called more than once, or that runs beside its caller,
    counts at each call as one buffer of the size of its peak.
    """
    uses = Counter(
        id(callee)
        for frame in ranges.frames
        for callees in frame.calls.values()
        for callee in callees
    )
    ticks: dict[int, int] = {}
    for frame in ranges.frames:  # callees come first
        within = sum(
            ticks[id(callee)]
            for callees in frame.calls.values()
            for callee in callees
            if uses[id(callee)] == 1
        )
        ticks[id(frame)] = len(frame.computation.instructions) + 2 + within
    starts = {id(ranges.entry): 0}
    found: list[Lifetime] = []
    places: dict[int, int] = {}
    holes: dict[int, list[tuple[int, int]]] = {}
    for frame in reversed(ranges.frames):
        start = starts.get(id(frame))
        if start is None:
            continue
        after = _moments(frame, start, uses, ticks)
        for position, callees in frame.calls.items():
            moment = after[position - 1] + 1 if position else start
            most = 0
            for callee in callees:
                if uses[id(callee)] == 1:
                    starts[id(callee)] = moment
                    moment += ticks[id(callee)]
                else:
                    most = max(most, callee.peak(space))
            if most:
                found.append(Lifetime(moment, after[position], most))
        for begin, end, callee in frame.beside:
            if callee.peak(space):
                moment = after[begin - 1] + 1 if begin else start
                found.append(Lifetime(moment, after[end], callee.peak(space)))
        for buffer in frame.buffers:
            if buffer.space is space:
                last = min(buffer.last, len(after) - 1)
                first = min(first_position(buffer), last)
                begins = after[first - 1] + 1 if first else start
                places[id(buffer)] = len(found)
                found.append(Lifetime(begins, after[last], buffer.size))
        for hole in frame.holes:
            stretch = (after[hole.first - 1] + 1, after[hole.last])
            holes.setdefault(id(hole.holder), []).append(stretch)
    for holder, stretches in holes.items():
        if holder in places:
            whole = found[places[holder]]
            found[places[holder]] = whole._replace(holes=tuple(sorted(stretches)))
    return found


def _moments(frame: Frame, start: int, uses: Counter[int], ticks: dict[int, int]) -> Sequence[int]:
    """The last moment of each position: the instruction's own, after what it runs."""
    steps = [1] * (len(frame.computation.instructions) + 1)
    steps[0] = start  # the first position ends at the frame's first moment
    for position, callees in frame.calls.items():
        steps[position] += sum(ticks[id(c)] for c in callees if uses[id(c)] == 1)
    return list(accumulate(steps))
