"""What became slower or faster between two runs, by step where both have steps.

Everything is the mean of one device's step, so that runs of different length can be laid
side by side, and so that the parts of the change add up to the change of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Generic, TypeVar

from hloscope.traces.compared import (
    Compared,
    Measured,
    Operation,
    Spread,
    counted,
    spread_of,
    step_times,
)
from hloscope.traces.exposure import Parts
from hloscope.traces.summary import DeviceSummary, Trace

__all__ = ["Change", "Changes", "RunDifference", "Side", "StepVerdict"]

_Key = TypeVar("_Key", bound=Hashable)

_NEVER = Spread(0.0, 0.0, 0.0)
"""Of what never ran."""


@dataclass(frozen=True)
class Side:
    """One of two runs.

    Attributes:
        trace: The run, read to be compared.
        per: What sums are divided by: the steps of all devices, or the devices.
    """

    trace: Trace
    per: int

    def mean(self, picoseconds: int) -> float:
        """A sum over all devices as that of one device's step, or of its window."""
        return picoseconds / self.per

    def part(self, of: Callable[[Parts], int]) -> float:
        """A part of the windows as that of one device's step, or of its window."""
        return self.mean(sum(of(device.parts) for device in self.trace.devices))

    @cached_property
    def times(self) -> list[int]:
        """From the end of one step to that of the next, of all devices."""
        return [time for device in self.trace.devices for time in _times(device)]

    @cached_property
    def spread(self) -> Spread | None:
        """Of the steps; ``None`` where there are fewer than three of a device."""
        if any(spread_of(_times(device)) is None for device in self.trace.devices):
            return None
        return spread_of(self.times)

    def merged(self, of: Callable[[Compared], Mapping[_Key, Measured]]) -> dict[_Key, Measured]:
        """Time of all devices by what they are compared by."""
        found: dict[_Key, list[Measured]] = {}
        for device in self.trace.devices:
            if device.compared is not None:
                for key, measured in of(device.compared).items():
                    found.setdefault(key, []).append(measured)
        number = len(self.trace.devices)
        return {key: _together(each, number) for key, each in found.items()}


def _times(device: DeviceSummary) -> list[int]:
    return step_times(device.steps, device.windows.chosen)


def _together(each: list[Measured], devices: int) -> Measured:
    """One word on several devices; on those where it never ran it took nothing.

    Devices that differ from each other do not vary for that from step to step: the mean of
    them varies by no more than they do in the mean.
    """
    spreads = [measured.spread for measured in each]
    known = [spread for spread in spreads if spread is not None]
    spread = None
    if len(known) == len(spreads):
        known += [_NEVER] * (devices - len(known))
        spread = Spread(
            fmean(one.usual for one in known),
            fmean(one.low for one in known),
            fmean(one.high for one in known),
        )
    return Measured(sum(measured.time for measured in each), spread, each[0].example)


@dataclass(frozen=True, slots=True)
class Change(Generic[_Key]):
    """One word in both runs; times are picoseconds of one device's step.

    Attributes:
        key: The word.
        example: An instruction or a kernel of the second run, or of the first where it is gone.
        before: Its time in the first run; ``None`` where it is new.
        after: Its time in the second; ``None`` where it is gone.
        apart: Whether its usual step differs by more than its steps vary in either run;
            ``None`` where that is not known.
    """

    key: _Key
    example: str
    before: float | None
    after: float | None
    apart: bool | None

    @property
    def change(self) -> float:
        """How much longer it takes."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def worth_saying(self) -> bool:
        """Whether it is more than noise, as far as that is known."""
        if self.before is None or self.after is None:
            return True
        return abs(self.change) >= 1 and self.apart is not False


@dataclass(frozen=True)
class Changes(Generic[_Key]):
    """All words of one kind, those that changed most first.

    Attributes:
        rows: The words.
        overlap: What work that runs side by side adds to the change of the whole, which is
            what the changes of the rows and of idle time leave of it: less than zero where
            more of it overlaps.
    """

    rows: tuple[Change[_Key], ...]
    overlap: float


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """Whether the usual step became slower; picoseconds.

    Attributes:
        before: The median step of the first run.
        after: That of the second.
        apart: Whether they differ by more than the steps of either run vary; ``None``
            with fewer than three steps.
    """

    before: float
    after: float
    apart: bool | None

    @property
    def share(self) -> float | None:
        """By how much it is slower, 0.1 for a tenth; ``None`` of nothing."""
        return self.after / self.before - 1 if self.before else None


class RunDifference:
    """Two runs laid side by side.

    Args:
        before: The first run; read to be compared, as the second.
        after: The second run.
    """

    def __init__(self, before: Trace, after: Trace) -> None:
        steps = [_steps(before), _steps(after)]
        self.by_step = all(steps)
        if not self.by_step:
            steps = [len(before.devices), len(after.devices)]
        self.before, self.after = Side(before, steps[0]), Side(after, steps[1])

    def part(self, of: Callable[[Parts], int]) -> tuple[float, float]:
        """A part of both windows, of one device's step."""
        return self.before.part(of), self.after.part(of)

    @cached_property
    def verdict(self) -> StepVerdict | None:
        """Whether the usual step became slower; ``None`` where one run has no steps."""
        if not self.by_step:
            return None
        spreads = self.before.spread, self.after.spread
        apart = None
        if spreads[0] is not None and spreads[1] is not None:
            apart = spreads[0].apart(spreads[1])
        return StepVerdict(median(self.before.times), median(self.after.times), apart)

    @property
    def categories(self) -> Changes[str]:
        """What changed by category."""
        return self._changes(lambda compared: compared.categories)

    @property
    def families(self) -> Changes[str]:
        """What changed by family of kernels."""
        return self._changes(lambda compared: compared.families)

    @cached_property
    def operations(self) -> Changes[Operation]:
        """What changed by operation, each found again by what it is for.

        Lines shift when a file is edited, and numbers of instructions with every compile:
        operations that differ in nothing else are told apart by them only where both runs
        have the same ones.
        """
        before = self.before.merged(lambda compared: compared.operations)
        after = self.after.merged(lambda compared: compared.operations)
        alike = _alike(before), _alike(after)
        shifted = {
            key for key in alike[0].keys() & alike[1].keys() if alike[0][key] != alike[1][key]
        }
        return self._difference(_put_together(before, shifted), _put_together(after, shifted))

    def _changes(self, of: Callable[[Compared], Mapping[_Key, Measured]]) -> Changes[_Key]:
        return self._difference(self.before.merged(of), self.after.merged(of))

    def _difference(
        self, before: Mapping[_Key, Measured], after: Mapping[_Key, Measured]
    ) -> Changes[_Key]:
        rows = [
            self._change(key, before.get(key), after.get(key))
            for key in dict.fromkeys((*before, *after))
        ]
        rows.sort(key=lambda row: -abs(row.change))
        busy = self.part(lambda parts: parts.busy)
        sums = (
            self.before.mean(sum(measured.time for measured in before.values())),
            self.after.mean(sum(measured.time for measured in after.values())),
        )
        overlap = (busy[1] - sums[1]) - (busy[0] - sums[0])
        return Changes(tuple(rows), overlap if abs(overlap) >= 1 else 0.0)

    def _change(self, key: _Key, before: Measured | None, after: Measured | None) -> Change[_Key]:
        one = before.spread if before is not None else _NEVER
        other = after.spread if after is not None else _NEVER
        named = after or before
        assert named is not None
        return Change(
            key,
            named.example,
            self.before.mean(before.time) if before is not None else None,
            self.after.mean(after.time) if after is not None else None,
            one.apart(other) if one is not None and other is not None else None,
        )


def _steps(trace: Trace) -> int:
    """Steps of all devices in their windows; 0 where one has none."""
    numbers = [len(counted(device.steps, device.windows.chosen)) for device in trace.devices]
    return sum(numbers) if all(numbers) else 0


def _alike(operations: Iterable[Operation]) -> dict[Operation, set[Operation]]:
    """Operations that differ in their lines or numbers alone."""
    found: dict[Operation, set[Operation]] = {}
    for operation in operations:
        found.setdefault(operation.loose, set()).add(operation)
    return found


def _put_together(
    found: Mapping[Operation, Measured], shifted: set[Operation]
) -> dict[Operation, Measured]:
    """Operations whose lines or numbers shifted without these."""
    merged: dict[Operation, list[Measured]] = {}
    for operation, measured in found.items():
        key = operation.loose if operation.loose in shifted else operation
        merged.setdefault(key, []).append(measured)
    return {key: _summed(each) for key, each in merged.items()}


def _summed(each: list[Measured]) -> Measured:
    """Several operations of one step as one; together they vary by no more than this."""
    if len(each) == 1:
        return each[0]
    spreads = [measured.spread for measured in each if measured.spread is not None]
    spread = None
    if len(spreads) == len(each):
        spread = Spread(
            sum(one.usual for one in spreads),
            sum(one.low for one in spreads),
            sum(one.high for one in spreads),
        )
    return Measured(sum(measured.time for measured in each), spread, each[0].example)
