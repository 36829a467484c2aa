"""Where a profiler's files are: runs in a folder, hosts in a run."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hloscope import units
from hloscope.errors import InputError, UsageError

__all__ = ["Run", "content_of", "find_run", "list_runs"]

_XSPACE = (".xplane.pb", ".xplane.pb.gz", ".pb", ".pb.gz")
_CHROME = (".trace.json", ".trace.json.gz", ".json", ".json.gz")
_DEEPEST = 6  # folders below the one that was given
_FIND = "Give a .xplane.pb, a .trace.json.gz, or the folder that they are in."
_ALLOW = "Let this user read it, or take a copy."
_PIECE = 1 << 20  # bytes that are unpacked at once
_MOST = 4 << 30  # bytes that a packed file may unpack to


@dataclass(frozen=True)
class Run:
    """One recording: a file a host.

    Attributes:
        name: The folder's name, which profilers make of the time, or the file's.
        files: An XSpace a host, or a Chrome trace where there is no XSpace.
        others: Names of further runs beside it.
        unfinished: Names of newer folders of runs, which hold no file yet.
    """

    name: str
    files: tuple[Path, ...]
    others: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()

    @property
    def are_xspaces(self) -> bool:
        """Whether its files are XSpaces."""
        return is_xspace(self.files[0])


def is_xspace(path: Path) -> bool:
    """Whether a file is an XSpace by its name."""
    return path.name.endswith(_XSPACE)


def find_run(source: Path, name: str | None = None) -> Run:
    """The run of a file or of a folder, which may hold several.

    Args:
        source: One file, the folder of a run, or any folder above.
        name: Of the run; the newest where left out.

    Raises:
        InputError: There is no such file or folder, or nothing that was recorded in it.
        UsageError: No run has that name.
    """
    if not _exists(source):
        dangling = source.is_symlink()
        raise InputError(
            f"this links to {os.readlink(source)}, which is not there"
            if dangling
            else "there is no such file or folder",
            place=str(source),
            hint=_FIND,
        )
    if not source.is_dir():
        if not source.name.endswith(_XSPACE + _CHROME):
            raise InputError(
                "this is no profiler's file by its name",
                place=str(source),
                hint=_FIND,
            )
        return Run(source.name, (source,))
    runs, unfinished = _runs(source)
    if not runs and unfinished:
        raise InputError(
            f"the run {unfinished[0]} holds no file yet",
            place=str(source),
            hint="Wait until the profiler has stopped: it writes its file at the end. If the "
            "process ended before that, profile again.",
        )
    if not runs:
        raise InputError(
            "nothing was recorded here: no .xplane.pb and no .trace.json.gz",
            place=str(source),
            hint="Give the folder that jax.profiler.trace was given.",
        )
    if name is None:
        return runs[0]
    found = next((run for run in runs if run.name == name), None)
    if found is None:
        raise UsageError(
            f"no run has the name {name!r}",
            place=f"--run {name}",
            hint=f"The runs are: {', '.join(run.name for run in runs)}.",
        )
    return found


def list_runs(folder: Path) -> list[Run]:
    """The runs below a folder, the newest first: by the time of their files, then by name.

    Raises:
        InputError: The folder cannot be read.
    """
    return _runs(folder)[0]


def _runs(folder: Path) -> tuple[list[Run], list[str]]:
    """The runs below a folder, and the names of folders of runs without a file in them."""
    found, bare = [], []
    for place, names in _walk(folder):
        files = sorted(name for name in names if name.endswith(".xplane.pb"))
        files = files or sorted(name for name in names if name.endswith(".xplane.pb.gz"))
        files = files or sorted(
            name for name in names if name.endswith((".trace.json", ".trace.json.gz"))
        )
        if files:
            found.append((place, [place / name for name in files]))
        elif place.parent.name == "profile":
            bare.append(place)
    found.sort(key=lambda run: (_newest(run[1]), run[0].name), reverse=True)
    names = [place.name or str(place) for place, _ in found]
    bare.sort(key=lambda place: (_newest([place]), place.name), reverse=True)
    runs = [
        Run(
            name,
            tuple(files),
            tuple(other for other in names if other != name),
            tuple(each.name for each in bare if _newest([each]) > _newest(files)),
        )
        for name, (_, files) in zip(names, found, strict=True)
    ]
    return runs, [place.name for place in bare]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            place=str(path),
            hint=_ALLOW if isinstance(error, PermissionError) else _FIND,
        ) from error


def content_of(path: Path, pad: int = 0) -> tuple[NDArray[np.uint8], bool]:
    """The bytes of a file, unpacked where it is gzipped.

    Args:
        path: The file.
        pad: How many zeros stand behind them.

    Returns:
        The bytes and the zeros, and whether a gzipped file ends before its contents do.

    Raises:
        InputError: It cannot be read, or is no plain file.
    """
    try:
        # Of a pipe nobody knows whether it ever ends.
        if not path.is_file() and _exists(path):
            raise InputError(
                "this is no plain file", place=str(path), hint="Give a file that is on a disk."
            )
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                return _unpacked(path, pad)
            size = os.fstat(file.fileno()).st_size
            buffer = np.zeros(size + pad, np.uint8)
            file.seek(0)
            # It may have become shorter since.
            size = file.readinto(buffer.data[:size])
        return buffer[: size + pad], False
    except (OSError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(
            f"cannot be read: {reason}",
            place=str(path),
            hint=_ALLOW
            if isinstance(error, PermissionError)
            else "Take the file again from where it was recorded.",
        ) from error
    except MemoryError as error:
        raise InputError("there is not enough memory for this file", place=str(path)) from error


def _unpacked(path: Path, pad: int) -> tuple[NDArray[np.uint8], bool]:
    parts, size, cut = [], 0, False
    with gzip.open(path) as file:
        try:
            # Piece by piece, so that those before a cut are kept.
            while part := file.read1(_PIECE):
                parts.append(part)
                size += len(part)
                if size > _MOST:
                    raise InputError(
                        f"it unpacks to more than {units.byte_size(_MOST)}",
                        place=str(path),
                        hint="Unpack it if it really is a profile, and give that file.",
                    )
        except EOFError:
            cut = True
    return np.frombuffer(b"".join([*parts, bytes(pad)]), np.uint8), cut


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    def refuse(error: OSError) -> None:
        # Folders below that cannot be read hold nothing that could be given.
        if error.filename is not None and Path(error.filename) == folder:
            raise error

    try:
        for place, folders, names in os.walk(folder, onerror=refuse):
            if len(Path(place).relative_to(folder).parts) >= _DEEPEST:
                folders.clear()
            yield Path(place), names
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}",
            place=str(folder),
            hint=_ALLOW if isinstance(error, PermissionError) else _FIND,
        ) from error


def _newest(files: list[Path]) -> float:
    times = [0.0]
    for file in files:
        try:
            times.append(file.stat().st_mtime)
        except OSError:
            continue
    return max(times)
