"""Which files a capture read, so that a later one knows whether it would read the same."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hloscope.capture.locations import library_folders

__all__ = ["FileState", "Recorder", "file_state", "listing_state", "unchanged"]

FileState = dict[str, Any]
"""``path``, ``kind`` (``file`` or ``listing``), ``size`` (``None``: not there), ``sha256``."""

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR
_MAX_FILES = 5000
_MAX_BYTES = 1 << 30
# Their contents come from the kernel or change by themselves.
_NO_FILES = ("/proc/", "/sys/", "/dev/")


class Recorder:
    """Listens to Python's audit events for files that are opened and folders that are listed."""

    def __init__(self, apart_from: Iterable[str] = ()) -> None:
        """Leave out what lies under the folders in ``apart_from``."""
        # This package's own files are part of every key already.
        ours = os.path.dirname(os.path.abspath(__file__))
        self._apart = tuple(
            os.path.abspath(folder) + os.sep for folder in (ours, *apart_from, *library_folders())
        )
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._listed: set[str] = set()
        self._active = False
        self._started = time.time_ns()

    def start(self) -> None:
        """Listen from now on; an audit hook cannot be taken off, only told to rest."""
        self._active = True
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, (str, bytes)):
                writes = isinstance(flags, int) and bool(flags & _WRITE_FLAGS)
                writes = writes or (isinstance(mode, str) and any(c in mode for c in "wax+"))
                name = os.path.abspath(os.fsdecode(path))
                (self._written if writes else self._read).add(name)
        elif event in ("os.listdir", "os.scandir"):
            path = arguments[0]
            # The import system lists the folders of sys.path; what it finds
            # there is known from the modules themselves.
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if isinstance(path, (str, bytes)) and not caller.startswith("importlib"):
                self._listed.add(os.path.abspath(os.fsdecode(path)))

    def finish(self) -> list[FileState] | None:
        """The state of every file that was read outside the installed libraries.

        Returns:
            ``None`` if a later capture could not rely on it: too many files, or
            one of them changed while the capture ran.
        """
        self._active = False
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        read = self._read | {os.path.abspath(name) for name in modules if isinstance(name, str)}
        paths = sorted(path for path in read - self._written if self._counts(path))
        if len(paths) > _MAX_FILES:
            return None
        states: list[FileState] = []
        total = 0
        for path in paths:
            state = file_state(path)
            total += state["size"] or 0
            if total > _MAX_BYTES or _changed_since(path, self._started):
                return None
            states.append(state)
        listed = (folder for folder in sorted(self._listed) if self._counts(folder + os.sep))
        return states + [listing_state(folder) for folder in listed]

    def _counts(self, path: str) -> bool:
        if path.startswith(_NO_FILES) or f"{os.sep}__pycache__{os.sep}" in path:
            return False
        return not path.startswith(self._apart)


def _changed_since(path: str, moment: int) -> bool:
    try:
        return os.stat(path).st_mtime_ns >= moment
    except OSError:
        return False


def file_state(path: str) -> FileState:
    """Size and digest of a file as it is now; a size of ``None`` where there is none."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            size = 0
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
    except OSError:
        return {"path": path, "kind": "file", "size": None, "sha256": ""}
    return {"path": path, "kind": "file", "size": size, "sha256": digest.hexdigest()}


def listing_state(folder: str) -> FileState:
    """Digest of the names in a folder."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {"path": folder, "kind": "listing", "size": None, "sha256": ""}
    text = "\0".join(names).encode(errors="surrogateescape")
    return {
        "path": folder,
        "kind": "listing",
        "size": len(names),
        "sha256": hashlib.sha256(text).hexdigest(),
    }


def unchanged(states: Iterable[FileState]) -> bool:
    """Whether every file and folder is still what it was."""
    for state in states:
        path = state["path"]
        if state["kind"] == "listing":
            if listing_state(path) != state:
                return False
            continue
        # The size is cheap to ask, and most changes change it.
        size = Path(path).stat().st_size if Path(path).is_file() else None
        if size != state["size"]:
            return False
        if size is not None and file_state(path) != state:
            return False
    return True
