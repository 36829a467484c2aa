"""The names of the files in a folder that ``--xla_dump_to`` wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["DumpFile", "find_dump"]


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One module of a dump, and the file that shows it best.

    Attributes:
        path: The file.
        name: Name of the module, for example ``jit_step``.
        label: Unlike the name unique in a dump: ``module_0004.jit_step``.
        stage: ``after optimizations``, ``before optimizations``, or empty
            where the file's name does not say.
        size: Bytes of the file as it lies there.
        before: The file of the same module before optimization, where ``path``
            is one after it.
    """

    path: Path
    name: str
    label: str
    stage: str
    size: int
    before: Path | None = None


_DUMPED = re.compile(
    r"(?:\d+\.)?(?P<number>module_\d+)\.(?P<name>.+?)\."
    r"(?:(?:sm_\d+\.\d+\w*|[\w\-]+)_)?(?P<when>before|after)_optimizations"
    r"(?P<suffix>\.txt|\.hlo|\.hlo\.pb|\.pb)(?:\.gz)?"
)
_PLAIN = re.compile(r"(?P<name>.+?)(?P<suffix>\.hlo|\.hlo\.txt|\.hlo\.pb|\.hlo_proto\.pb)(?:\.gz)?")
_HEADER = re.compile(rb"\s*HloModule\s+%?([^\s,]+)")
_RANK = {("after", False): 0, ("after", True): 1, ("before", False): 2, ("before", True): 3}


def find_dump(folder: Path) -> list[DumpFile]:
    """One row for each module in a folder, in the order of their labels.

    Optimized HLO is preferred, and text before protobuf: only text says how
    many partitions a program has. Of the module before optimization protobuf is
    preferred, since text leaves the elements of its constants out. Files that
    are no dump but are named ``*.hlo``, ``*.hlo.txt`` or ``*.hlo.pb`` (maybe
    with ``.gz``) come too.

    Raises:
        OSError: The folder cannot be read.
    """
    best: dict[str, tuple[int, DumpFile]] = {}
    before: dict[str, tuple[int, Path]] = {}
    for path in folder.iterdir():
        if not path.is_file():
            continue
        if dumped := _DUMPED.fullmatch(path.name):
            when = dumped["when"]
            rank = _RANK[when, dumped["suffix"].endswith("pb")]
            label = f"{dumped['number']}.{dumped['name']}"
            stage = f"{when} optimizations"
            row = DumpFile(path, dumped["name"], label, stage, path.stat().st_size)
            if when == "before" and (label not in before or rank > before[label][0]):
                before[label] = rank, path
        elif plain := _PLAIN.fullmatch(path.name):
            rank = 0
            label = path.name
            name = _name_inside(path) or plain["name"]
            row = DumpFile(path, name, label, "", path.stat().st_size)
        else:
            continue
        if label not in best or rank < best[label][0]:
            best[label] = (rank, row)
    return [
        replace(row, before=before[label][1])
        if row.stage.startswith("after") and label in before
        else row
        for label, (_, row) in sorted(best.items())
    ]


def _name_inside(path: Path) -> str | None:
    """The name on a text's first line."""
    try:
        with path.open("rb") as file:
            match = _HEADER.match(file.read(4096))
    except OSError:
        return None
    return match.group(1).decode("utf-8", "replace") if match else None
