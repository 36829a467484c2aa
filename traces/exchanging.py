"""Which exchanges a device took part in, each start with its end, and over which devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hloscope.errors import InputError
from hloscope.ir import Instruction, parse_shape
from hloscope.ir.replica_groups import Groups, parse_replica_groups
from hloscope.ir.shape import ShapeError
from hloscope.traces.categories import Categories, Programs
from hloscope.traces.codes import distinct
from hloscope.traces.intervals import Intervals, union, union_of
from hloscope.traces.kernel_names import Category
from hloscope.traces.recording import NONE
from hloscope.traces.timeline import Device
from hloscope.traces.work import Work

__all__ = ["Exchanging", "Key", "Written", "exchanging_of"]

_OPCODE = (
    r"(all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-permute"
    r"|collective-broadcast)(-start|-done)?"
)
_COLLECTIVE = re.compile(_OPCODE)
_TEXT = re.compile(r"= (?P<shape>.*?) (?P<opcode>" + _OPCODE + r")\(")
_GROUPS = re.compile(r"replica_groups=((?:mesh\[.*?\]|\[).*?|\{.*?\}\}|\{\})(?:, [a-z_]+=|$)")
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Written:
    """What the HLO says of an exchange.

    Attributes:
        opcode: The collective's, without ``-start``.
        groups: Its replica groups as they are printed, or empty.
        group_size: Devices of the largest group; ``None`` where that is not said.
        payload: Bytes of the whole of what is exchanged, as one device sees it: operands,
            for an all-gather results; ``None`` where that is not known.
        source: The Python line, or empty.
        assigned: Ids of the devices by their numbers in groups, where the program tells.
    """

    opcode: str
    groups: str
    group_size: int | None
    payload: int | None
    source: str
    assigned: tuple[int, ...] = ()

    def devices(self) -> Groups | None:
        """The groups by ids of devices: as they are numbered, where the program tells no ids."""
        groups, ids = self.numbers(), self.assigned
        if not groups or not ids or any(n >= len(ids) for group in groups for n in group):
            return groups
        return tuple(tuple(ids[number] for number in group) for group in groups)

    def numbers(self) -> Groups | None:
        """The groups as they are written; ``()`` is one of all, ``None`` where none are."""
        try:
            return parse_replica_groups(self.groups) if self.groups else None
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Key:
    """One exchange as the program has it.

    Attributes:
        program: The program's id, 0 where none is said.
        module: Its module's name.
        instruction: The instruction that does it or starts it; a kernel's name where the
            recording has no instruction.
        category: What kind it is.
        written: What the HLO says, where the recording has it.
    """

    program: int
    module: str
    instruction: str
    category: Category
    written: Written | None

    @property
    def name(self) -> tuple[str, str]:
        """What it is called on every host: program ids may differ."""
        return self.module, self.instruction


@dataclass(frozen=True)
class Exchanging:
    """A device's part in exchanges: one entry an event, in the order of key and time.

    Attributes:
        keys: The exchanges.
        codes: Place of each event's in them.
        begins: When each event begins, in picoseconds.
        ends: When it ends.
        kinds: What each event is of its exchange: 0 in flight beside the operations, 1 its
            start, or all of it, 2 its end. Several of one exchange are still one.
    """

    keys: tuple[Key, ...]
    codes: NDArray[np.int32]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    kinds: NDArray[np.int8]

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Where the events of each key begin, and where the last ones end."""
        return np.searchsorted(self.codes, np.arange(len(self.keys) + 1))

    @cached_property
    def spans(self) -> tuple[Intervals, ...]:
        """When each of them ran or was in flight."""
        events = [self.of(key) for key in range(len(self.keys))]
        return tuple(union(self.begins[mine], self.ends[mine]) for mine in events)

    @cached_property
    def by_category(self) -> Mapping[Category, Intervals]:
        """When any of a kind did."""
        found: dict[Category, list[Intervals]] = {}
        for key, span in zip(self.keys, self.spans, strict=True):
            found.setdefault(key.category, []).append(span)
        return {category: union_of(spans) for category, spans in found.items()}

    @cached_property
    def all(self) -> Intervals:
        """When any of them did."""
        return union_of(self.by_category.values())

    def of(self, key: int) -> slice:
        """Events of a key."""
        return slice(int(self.edges[key]), int(self.edges[key + 1]))

    def runs(self, key: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """When each run of an exchange began and ended.

        From what was in flight where that is recorded, else from the start to the end of
        as many, else by the start alone.
        """
        mine = self.of(key)
        parts = [self.kinds[mine] == kind for kind in range(3)]
        begins, ends = self.begins[mine], self.ends[mine]
        flying, starts, stops = (np.flatnonzero(part) for part in parts)
        if len(flying):
            return begins[flying], ends[flying]
        if len(starts) and len(starts) == len(stops):
            return begins[starts], np.maximum(ends[stops], ends[starts])
        chosen = starts if len(starts) else stops
        return begins[chosen], ends[chosen]


def exchanging_of(
    device: Device, categories: Categories, flying: Categories | None, programs: Programs | None
) -> Exchanging:
    """Find the exchanges of a device.

    Args:
        device: The device.
        categories: What each event of its work did.
        flying: What each of its transfers in flight does; they are left out without.
        programs: The embedded modules.
    """
    places: dict[tuple[int, str, str, Category], int] = {}
    keys: list[Key] = []
    parts = [_events(device.work, categories, programs, places, keys, in_flight=False)]
    if flying is not None and len(device.flying):
        parts.append(_events(device.flying, flying, programs, places, keys, in_flight=True))
    codes, begins, ends, kinds = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((begins, codes))
    return Exchanging(tuple(keys), codes[order], begins[order], ends[order], kinds[order])


_Events = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]


def _events(
    work: Work,
    categories: Categories,
    programs: Programs | None,
    places: dict[tuple[int, str, str, Category], int],
    keys: list[Key],
    *,
    in_flight: bool,
) -> _Events:
    mine = np.flatnonzero(categories.communicating)
    found, rows = distinct(
        (
            work.programs[mine],
            work.operations.codes[mine],
            work.labels.codes[mine],
            work.modules.codes[mine],
            categories.codes[mine].astype(np.int32),
        )
    )
    names = {(row[0], _name(work, row)) for row in rows}
    texts = _texts(work, mine, found)
    codes = np.zeros(len(rows), np.int32)
    kinds = np.zeros(len(rows), np.int8)
    for place, row in enumerate(rows):
        program, name, label = row[0], _name(work, row), work.labels.words[row[2]]
        instruction = programs.instruction(program, name) if programs is not None else None
        start = _start(instruction, program, name, names)
        kind = categories.kinds[row[4]]
        module = work.modules.words[row[3]] if row[3] != NONE else ""
        key = program, module, start, kind
        if key not in places:
            places[key] = len(keys)
            text = texts.get(place, label)
            keys.append(Key(program, module, start, kind, _written(instruction, text)))
        codes[place] = places[key]
        kinds[place] = 0 if in_flight else 1 + (start != name)
    return codes[found], work.begins[mine], work.ends[mine], kinds[found]


def _texts(work: Work, mine: NDArray[np.int64], places: NDArray[np.int32]) -> Mapping[int, str]:
    """The instruction's text by the place of a row, where it stands beside the label."""
    if work.texts is None:
        return {}
    # Any event of a row will do: all are of one instruction.
    rows, events = np.unique(places, return_index=True)
    codes = work.texts.codes[mine[events]]
    return {
        row: work.texts.words[code]
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True)
        if code != NONE
    }


def _name(work: Work, row: Sequence[int]) -> str:
    return work.operations.words[row[1]] if row[1] != NONE else work.labels.words[row[2]]


def _start(
    instruction: Instruction | None, program: int, name: str, names: set[tuple[int, str]]
) -> str:
    """The name of the start that an end belongs to; of anything else its own."""
    if instruction is not None:
        value = instruction
        for _ in range(_MOST_STEPS):
            if not value.opcode.endswith(("-done", "-update")) or not value.operands:
                break
            value = value.operands[0]
        if value.opcode.endswith("-start"):
            return value.name
    # Without the module: XLA numbers the two alike, as long as it clones neither.
    start = name.replace("-done", "-start", 1)
    return start if (program, start) in names else name


def _written(instruction: Instruction | None, label: str) -> Written | None:
    if instruction is None:
        return _of_text(label)
    found = next(_collectives(instruction), None)
    if found is None:
        return None
    opcode = found.opcode.removesuffix("-start").removesuffix("-done")
    groups = found.attributes.get("replica_groups", "")
    size: int | None = None
    try:
        listed = found.replica_groups
        if listed is not None:
            module = found.computation.module
            every = module.replica_count * module.num_partitions
            # A protobuf tells the number of devices only with their assignment.
            size = max(map(len, listed), default=every if every > 1 else None)
    except InputError:
        pass
    if opcode == "all-gather":
        shape = found.shape
        if found.opcode.endswith("-start") and len(shape.elements) > 1:
            shape = shape.elements[1]
        payload = shape.bytes
    else:
        payload = sum(operand.shape.bytes for operand in found.operands)
    line = instruction.location or found.location
    assigned = found.computation.module.devices
    return Written(opcode, groups, size, payload, str(line) if line is not None else "", assigned)


def _collectives(instruction: Instruction) -> Iterator[Instruction]:
    """The collective that an instruction is, calls, fuses or waits for."""
    for _ in range(_MOST_STEPS):
        if not instruction.opcode.endswith("-done") or not instruction.operands:
            break
        instruction = instruction.operands[0]
    if _COLLECTIVE.fullmatch(instruction.opcode):
        yield instruction
    elif instruction.opcode in ("fusion", "async-start"):
        for called in instruction.called:
            for each in called.instructions:
                yield from _collectives(each)


def _of_text(text: str) -> Written | None:
    """What an instruction's text says, which is what a TPU calls its events."""
    match = _TEXT.search(text)
    if match is None:
        return None
    opcode = match["opcode"].removesuffix("-start").removesuffix("-done")
    groups = _GROUPS.search(text)
    said = groups[1] if groups is not None else ""
    payload: int | None = None
    size: int | None = None
    try:
        size = max(map(len, parse_replica_groups(said)), default=None) if said else None
        # Only of these are the operands as large as the result; starts return both.
        if match["opcode"] in ("all-reduce", "all-gather", "all-to-all"):
            payload = parse_shape(match["shape"]).bytes
    except (ValueError, ShapeError):
        pass
    return Written(opcode, said, size, payload, "")
