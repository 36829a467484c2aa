"""What one host recorded, in the same columns whichever file it comes from.

Times are whole picoseconds from the recording's origin: the earliest timestamp that any
line has. A year of them fits into 64 bits, absolute nanoseconds since 1970 would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["NONE", "Codes", "Lane", "Recording", "Section", "Stats", "TextColumn", "signed"]

Codes = NDArray[np.int32]
"""Places in a list of words; ``NONE`` for no word."""

NONE = -1


def signed(number: int) -> int:
    """An id of 64 bits as columns hold it: fingerprints use all of them, with and without sign."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Words of every event of a lane, each word kept once.

    Attributes:
        codes: Place of each event's word, or ``NONE``.
        words: The words.
    """

    codes: Codes
    words: Sequence[str]

    def __getitem__(self, event: int) -> str | None:
        code = int(self.codes[event])
        return None if code == NONE else self.words[code]


class Stats(Protocol):
    """The stats of a lane's events, decoded when they are asked for."""

    def names(self) -> frozenset[str]:
        """Those that any event of the lane's plane may have."""

    def texts(self, name: str) -> TextColumn:
        """A stat in words."""

    def numbers(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """A stat that is a whole number, and which events have it."""

    def present(self, name: str) -> NDArray[np.bool_]:
        """Which events have a stat."""

    def fetch(self, names: Sequence[str]) -> None:
        """Decode several at once, which is quicker than one by one."""

    def release(self) -> None:
        """Let go of what was decoded; what is asked for again is decoded again."""

    def share(self, names: Sequence[str]) -> float:
        """About which share of the events has one of some stats, by a few thousand of them."""


@dataclass(frozen=True)
class Lane:
    """One line: a stream, a thread, or one that was derived of others.

    Attributes:
        name: ``Stream #7(Compute)``, ``python``, ``XLA Ops``...
        id: Its number; of a GPU's stream the stream's.
        begins: When each event begins, in picoseconds; in the order of the file.
        ends: When each ends.
        labels: What each is called.
        about: What all events of one label have in common, by the label's place.
        stats: What else each event says.
    """

    name: str
    id: int
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    labels: TextColumn
    about: Callable[[int], Mapping[str, object]]
    stats: Stats

    def __len__(self) -> int:
        return len(self.begins)


@dataclass(frozen=True)
class Section:
    """A plane: one device, or the threads of a host.

    Attributes:
        name: ``/device:GPU:0``, ``/host:CPU``...
        lanes: Its lines that have events.
        stats: What it says of itself.
    """

    name: str
    lanes: tuple[Lane, ...]
    stats: Mapping[str, object]


@dataclass(frozen=True)
class Recording:
    """What one host recorded.

    Attributes:
        host: The host's name, or the file's.
        place: The file.
        sections: Planes of one name are one.
        programs: Serialized HLO modules by program id.
        notes: What is missing or was left out, in sentences.
        cut: Where the file is cut off, in a sentence; empty of a whole one.
    """

    host: str
    place: str
    sections: tuple[Section, ...]
    programs: Mapping[int, Callable[[], bytes]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cut: str = ""
