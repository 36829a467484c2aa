"""Who keeps the others waiting: when each device arrives at the exchanges that it shares.

An exchange that needs something of everybody ends after the last of its devices has come.
So on one clock the wait of a device is the last arrival less its own, and what makes the
comparison hold is checked: no device may be done before the last one has come. Clocks of
different hosts are not synchronised to that degree; across hosts only durations compare,
and the host whose devices are done soonest came last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.exchanging import Exchanging, Key
from hloscope.traces.kernel_names import Category
from hloscope.traces.windows import Window

__all__ = [
    "Arrivals",
    "DeviceArrivals",
    "ExchangeArrivals",
    "HostArrivals",
    "Shortest",
    "Taking",
    "arrivals_of",
    "compare_hosts",
]

_SLOP = 1_000_000  # picoseconds by which clocks of one host's devices may differ: 1 us
_AGREE = 0.95  # share of the runs that must end after the last arrival
_MOST_SHIFTS = 16  # runs that one device may have more of: the profiler cuts its ends
_MOST_RUNS = 20_000  # runs of one host whose durations are kept to compare hosts
_TOGETHER = frozenset(
    {
        Category.ALL_REDUCE,
        Category.ALL_GATHER,
        Category.REDUCE_SCATTER,
        Category.ALL_TO_ALL,
    }
)

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Taking:
    """One device of a host as it takes part.

    Attributes:
        name: ``GPU 0``.
        number: Its number.
        exchanging: Its exchanges.
        window: What of them counts.
    """

    name: str
    number: int
    exchanging: Exchanging
    window: Window


@dataclass(frozen=True, slots=True)
class DeviceArrivals:
    """How one device arrives; times are in picoseconds.

    Attributes:
        name: The device.
        compared: Runs of exchanges in which it was compared with others.
        last: Those in which it came last.
        waited: Time from its own arrivals to the last ones.
        caused: What the others waited where it came last, of all of them together.
    """

    name: str
    compared: int
    last: int
    waited: int
    caused: int


@dataclass(frozen=True, slots=True)
class ExchangeArrivals:
    """How devices arrive at one exchange.

    Attributes:
        key: Which.
        compared: Runs that were compared.
        waited: Time that all devices waited in them, in picoseconds.
        straggler: The device that most of that was waited for.
        share: The part (0..1) of it that was.
    """

    key: Key
    compared: int
    waited: int
    straggler: str
    share: float


@dataclass(frozen=True, eq=False)
class Shortest:
    """The shortest duration that any device of a host had in each run of an exchange.

    Attributes:
        durations: In picoseconds, in the order of the runs.
        counted: Which of the runs lie in the window.
    """

    durations: Times
    counted: NDArray[np.bool_]


@dataclass(frozen=True)
class Arrivals:
    """Devices, or hosts, that are compared with each other.

    Attributes:
        devices: How each arrives, in their order.
        exchanges: The one that is waited for most first.
        skipped: Exchanges that could not be compared, by the reason.
        partial: Whether devices that nobody could compare take part: a wait is at least that.
        assumed: Exchanges whose devices the recording does not name: all were taken for
            them, and the ends agree.
    """

    devices: tuple[DeviceArrivals, ...]
    exchanges: tuple[ExchangeArrivals, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False
    assumed: int = 0


@dataclass(frozen=True)
class HostArrivals:
    """What one host gives to the comparison.

    Attributes:
        arrivals: Of its own devices; ``None`` of a single one.
        shortest: Durations of exchanges that reach beyond the host, by module and name.
    """

    arrivals: Arrivals | None = None
    shortest: Mapping[tuple[str, str], Shortest] = field(default_factory=dict)


@dataclass(slots=True)
class _Sums:
    compared: int = 0
    last: int = 0
    waited: int = 0
    caused: int = 0


_Runs = tuple[Times, Times]


def arrivals_of(devices: Sequence[Taking]) -> HostArrivals:
    """Compare when the devices of one host arrive at each exchange.

    Args:
        devices: Of one host, whose times are of one clock.
    """
    sums = {device.name: _Sums() for device in devices}
    skipped: dict[str, int] = {}
    rows: list[ExchangeArrivals] = []
    shortest: dict[tuple[str, str], Shortest] = {}
    partial, assumed, left = False, 0, _MOST_RUNS
    for key, runs in _shared(devices):
        beyond = _beyond(key, len(devices))
        if beyond:
            found = _shortest(runs, devices)
            if found is not None and len(found.durations) <= left and key.name not in shortest:
                shortest[key.name] = found
                left -= len(found.durations)
        if len(devices) < 2:
            continue
        groups = _groups(key, runs, devices)
        if isinstance(groups, str):
            skipped[groups] = skipped.get(groups, 0) + 1
            continue
        row = _compared(key, runs, groups, devices, sums)
        if isinstance(row, str):
            skipped[row] = skipped.get(row, 0) + 1
        elif row is not None:
            rows.append(row)
            partial |= beyond
            assumed += key.written is None or not key.written.groups
    arrivals = None
    if len(devices) > 1:
        arrivals = Arrivals(
            tuple(_device(name, found) for name, found in sums.items()),
            tuple(sorted(rows, key=lambda row: -row.waited)),
            skipped,
            partial,
            assumed,
        )
    return HostArrivals(arrivals, shortest)


def compare_hosts(hosts: Mapping[str, HostArrivals]) -> Arrivals | None:
    """Estimate which host comes last at the exchanges that they share, by durations.

    Whoever comes last finds the others there and is done soonest: what a host's shortest
    run is longer than that of another, it waited for that one. As many runs of each are
    compared in their order.

    Args:
        hosts: What each gives, by its name.

    Returns:
        ``None`` where no exchange is known to reach from host to host.
    """
    if len(hosts) < 2:
        return None
    names = list(hosts)
    sums = {name: _Sums() for name in names}
    skipped: dict[str, int] = {}
    rows = []
    for shared in dict.fromkeys(key for host in hosts.values() for key in host.shortest):
        found = [hosts[name].shortest.get(shared) for name in names]
        having = [each for each in found if each is not None]
        if len(having) < len(names) or len({len(each.durations) for each in having}) > 1:
            why = "not as many runs on each host"
            skipped[why] = skipped.get(why, 0) + 1
            continue
        counted = np.logical_and.reduce([each.counted for each in having])
        times = np.stack([each.durations for each in having])[:, counted]
        if times.shape[1]:
            # A long run is an early arrival.
            key = Key(0, *shared, Category.COLLECTIVE, None)
            rows.append(_add(key, -times, names, sums))
    if not rows:
        return None
    return Arrivals(
        tuple(_device(name, found) for name, found in sums.items()),
        tuple(sorted(rows, key=lambda row: -row.waited)),
        skipped,
    )


def _device(name: str, found: _Sums) -> DeviceArrivals:
    return DeviceArrivals(name, found.compared, found.last, found.waited, found.caused)


def _shared(devices: Sequence[Taking]) -> Iterator[tuple[Key, dict[int, _Runs]]]:
    """Exchanges that wait for everybody, with the runs of each device by its place."""
    found: dict[tuple[int, str, str], tuple[Key, dict[int, _Runs]]] = {}
    for place, device in enumerate(devices):
        for number, key in enumerate(device.exchanging.keys):
            if key.category in _TOGETHER:
                name = key.program, *key.name
                runs = found.setdefault(name, (key, {}))[1]
                runs[place] = device.exchanging.runs(number)
    yield from found.values()


def _beyond(key: Key, devices: int) -> bool:
    """Whether an exchange is known to be of one group with devices of other hosts, too."""
    size = key.written.group_size if key.written is not None else None
    groups = key.written.devices() if key.written is not None else None
    return size is not None and size > devices and groups is not None and len(groups) <= 1


def _groups(
    key: Key, runs: Mapping[int, _Runs], devices: Sequence[Taking]
) -> list[list[int]] | str:
    """Places of the devices that exchange with each other, or why that is not known."""
    said = key.written.devices() if key.written is not None else None
    if said is None or len(said) < 2:
        return [sorted(runs)]
    places = {devices[place].number: place for place in runs}
    if {number for group in said for number in group} != set(places):
        return "which of the devices exchange with each other is not known"
    return [[places[number] for number in group] for group in said if len(group) > 1]


def _compared(
    key: Key,
    runs: Mapping[int, _Runs],
    groups: Sequence[Sequence[int]],
    devices: Sequence[Taking],
    sums: Mapping[str, _Sums],
) -> ExchangeArrivals | str | None:
    """Add the waits of one exchange up, all of its groups; why not where they do not fit."""
    chosen: list[tuple[Times, list[str]]] = []
    for group in groups:
        if len(group) < 2:
            continue
        aligned = _aligned([runs[place] for place in group])
        if isinstance(aligned, str):
            return aligned
        begins, holds = aligned
        windows = [devices[place].window for place in group]
        inside = np.logical_and.reduce(
            [(begin >= w.begin) & (begin < w.end) for begin, w in zip(begins, windows, strict=True)]
        )
        begins = begins[:, holds & inside]
        if begins.shape[1]:
            chosen.append((begins, [devices[place].name for place in group]))
    found = [_add(key, begins, names, sums) for begins, names in chosen]
    if not found:
        return None
    most = max(found, key=lambda row: row.waited)
    waited = sum(row.waited for row in found)
    share = most.share * most.waited / waited if waited else 0.0
    return ExchangeArrivals(key, sum(row.compared for row in found), waited, most.straggler, share)


def _aligned(runs: Sequence[_Runs]) -> tuple[Times, NDArray[np.bool_]] | str:
    """When each device begins each run, and which runs end after the last of them began.

    The profiler may cut a run off a device's recording: of one that has more of them,
    those are compared that fit best.
    """
    size = min(len(begins) for begins, _ in runs)
    if max(len(begins) for begins, _ in runs) - size > _MOST_SHIFTS or not size:
        return "not as many runs on each device"
    first = next(run for run in runs if len(run[0]) == size)
    parts = [_fitting(begins, ends, first) for begins, ends in runs]
    begins = np.stack([begin for begin, _ in parts])
    ends = np.stack([end for _, end in parts])
    holds = ends.min(axis=0) + _SLOP >= begins.max(axis=0)
    if np.mean(holds) < _AGREE:
        return "some devices are done before others begin: not of one group, or of one clock"
    return begins, holds


def _fitting(begins: Times, ends: Times, first: _Runs) -> _Runs:
    """As many runs as another device has: those that overlap most of its own."""
    size = len(first[0])

    def overlapping(shift: int) -> int:
        mine = slice(shift, shift + size)
        return int(np.count_nonzero((begins[mine] <= first[1]) & (ends[mine] >= first[0])))

    best = max(range(len(begins) - size + 1), key=overlapping)
    return begins[best : best + size], ends[best : best + size]


def _add(
    key: Key, begins: Times, names: Sequence[str], sums: Mapping[str, _Sums]
) -> ExchangeArrivals:
    """Add up what each of a group waits for the last one, in runs that are columns."""
    waits = begins.max(axis=0) - begins
    last = begins.argmax(axis=0)
    together = waits.sum(axis=0)
    caused = [int(together[last == place].sum()) for place in range(len(names))]
    for place, name in enumerate(names):
        found = sums[name]
        found.compared += begins.shape[1]
        # Who comes last at the same moment as others keeps nobody waiting.
        found.last += int(np.count_nonzero((last == place) & (together > 0)))
        found.waited += int(waits[place].sum())
        found.caused += caused[place]
    most = int(np.argmax(caused))
    total = int(together.sum())
    return ExchangeArrivals(
        key, begins.shape[1], total, names[most], caused[most] / total if total else 0.0
    )


def _shortest(runs: Mapping[int, _Runs], devices: Sequence[Taking]) -> Shortest | None:
    every = list(runs.values())
    if len({len(begins) for begins, _ in every}) != 1:
        return None
    durations = np.stack([ends - begins for begins, ends in every]).min(axis=0)
    counted = np.logical_and.reduce(
        [
            (begins >= devices[place].window.begin) & (begins < devices[place].window.end)
            for place, (begins, _) in runs.items()
        ]
    )
    return Shortest(durations, counted)
