"""Where a profiler's files are: runs in a folder, hosts in a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hloscope.errors import InputError, UsageError

__all__ = ["Run", "find_run", "list_runs"]

_XSPACE = (".xplane.pb", ".xplane.pb.gz", ".pb", ".pb.gz")
_CHROME = (".trace.json", ".trace.json.gz", ".json", ".json.gz")
_DEEPEST = 6  # folders below the one that was given


@dataclass(frozen=True)
class Run:
    """One recording: a file a host.

    Attributes:
        name: The folder's name, which profilers make of the time, or the file's.
        files: An XSpace a host, or a Chrome trace where there is no XSpace.
        others: Names of further runs beside it.
    """

    name: str
    files: tuple[Path, ...]
    others: tuple[str, ...] = ()

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
    if not source.exists():
        raise InputError("there is no such file or folder", place=str(source))
    if not source.is_dir():
        if not source.name.endswith(_XSPACE + _CHROME):
            raise InputError(
                "this is no profiler's file by its name",
                place=str(source),
                hint="Give a .xplane.pb, a .trace.json.gz, or the folder that they are in.",
            )
        return Run(source.name, (source,))
    runs = list_runs(source)
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
    found = []
    for place, names in _walk(folder):
        files = sorted(name for name in names if name.endswith(".xplane.pb"))
        files = files or sorted(name for name in names if name.endswith(".xplane.pb.gz"))
        files = files or sorted(
            name for name in names if name.endswith((".trace.json", ".trace.json.gz"))
        )
        if files:
            found.append((place, [place / name for name in files]))
    found.sort(key=lambda run: (_newest(run[1]), run[0].name), reverse=True)
    names = [place.name or str(place) for place, _ in found]
    return [
        Run(name, tuple(files), tuple(other for other in names if other != name))
        for name, (_, files) in zip(names, found, strict=True)
    ]


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    try:
        for place, folders, names in os.walk(folder):
            if len(Path(place).relative_to(folder).parts) >= _DEEPEST:
                folders.clear()
            yield Path(place), names
    except OSError as error:
        raise InputError(f"cannot be read: {error}", place=str(folder)) from error


def _newest(files: list[Path]) -> float:
    times = [0.0]
    for file in files:
        try:
            times.append(file.stat().st_mtime)
        except OSError:
            continue
    return max(times)
