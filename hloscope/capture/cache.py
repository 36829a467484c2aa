"""What was captured before, on disk.

Two levels. ``programs`` holds artifacts by what decides the compiler's answer:
the lowered program, the target, the flags and all versions; the worker asks it
between lowering and compiling. ``requests`` holds artifacts by the request as
the user wrote it, with the list of files that the capture read; it answers
without importing JAX. An entry that is damaged counts as not there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from hloscope.capture.artifact import FORMAT, Artifact
from hloscope.capture.dependencies import FileState, unchanged
from hloscope.capture.request import CaptureRequest
from hloscope.errors import InputError

__all__ = ["MAX_BYTES", "ProgramCache", "RequestCache", "fingerprint", "request_key"]

MAX_BYTES = 2 * 10**9
"""The oldest entries go once a level holds more."""

_SUFFIX = ".hloscope"
_VOLATILE = frozenset(
    (
        *("PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES", "COLORTERM"),
        *("TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "WINDOWID"),
        *("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "PAGER", "LESS", "TMUX", "TMUX_PANE", "STY"),
        *("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "XDG_SESSION_ID", "DBUS_SESSION_BUS_ADDRESS"),
        *("INVOCATION_ID", "JOURNAL_STREAM"),
    )
)
_VOLATILE_PREFIXES = ("SSH_", "VSCODE_", "GPG_")
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "hloscope")


def fingerprint(*parts: Any) -> str:
    """SHA-256 over values that JSON can hold, and over this version of the capture."""
    text = json.dumps([FORMAT, _own_code(), _processor(), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def request_key(request: CaptureRequest, plugins: dict[str, str]) -> str:
    """What a request means here: its words, the versions and the environment."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _VOLATILE and not name.startswith(_VOLATILE_PREFIXES)
    }
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return fingerprint(
        request.to_json(),
        os.getcwd(),
        sys.version,
        sys.prefix,
        versions,
        plugins,
        _installed(),
        environment,
    )


def _installed() -> list[str]:
    """Names and versions of all installed distributions, as their folders spell them."""
    found: set[str] = set()
    for folder in sys.path:
        with contextlib.suppress(OSError):
            found.update(name for name in os.listdir(folder or ".") if name.endswith(".dist-info"))
    return sorted(found)


def _own_code() -> str:
    """Digest of this package's files, so that a change to it is a change of the answer."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    digest.update((Path(__file__).parent.parent / "chips.py").read_bytes())
    return digest.hexdigest()


def _processor() -> str:
    """What the CPU compiler sees of this machine: its architecture and features."""
    features = platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as stream:
        for line in stream:
            if line.startswith(("flags", "Features")):
                features = line
                break
    return f"{platform.machine()} {hashlib.sha256(features.encode()).hexdigest()}"


class ProgramCache:
    """Artifacts by the lowered program, the target, the flags and the versions.

    Args:
        folder: The cache folder; the level is a folder in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "programs"

    def get(self, key: str) -> Artifact | None:
        """The artifact of that key, or ``None``."""
        return _read_artifact(self._folder / f"{key}{_SUFFIX}")

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep an artifact; a disk that is full or read-only keeps nothing."""
        _keep(self._folder / f"{key}{_SUFFIX}", artifact)


class RequestCache:
    """Artifacts by the request, valid while the files that the capture read are the same.

    Args:
        folder: The cache folder; the level is a folder in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "requests"

    def get(self, key: str) -> Artifact | None:
        """The artifact of that key if nothing that it was made from has changed."""
        path = self._folder / f"{key}.json"
        try:
            entry = json.loads(path.read_text())
            if not unchanged(entry["files"]):
                return None
            name = str(entry["artifact"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        artifact = _read_artifact(self._folder / name)
        if artifact is not None:
            with contextlib.suppress(OSError):
                os.utime(path)
        return artifact

    def put(self, key: str, artifact: Artifact, files: list[FileState]) -> None:
        """Keep an artifact with the state of the files that it was made from."""
        name = f"{key}{_SUFFIX}"
        if _keep(self._folder / name, artifact):
            with contextlib.suppress(OSError):
                text = json.dumps({"artifact": name, "files": files})
                _write(self._folder / f"{key}.json", text)


def _read_artifact(path: Path) -> Artifact | None:
    if not path.exists():
        return None
    try:
        artifact = Artifact.load(path)
    except InputError:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return dataclasses.replace(artifact, cached=True)


def _keep(path: Path, artifact: Artifact) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        artifact.save(path)
        _evict(path.parent, MAX_BYTES)
    except (OSError, InputError):
        return False
    return True


def _write(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        os.replace(name, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _evict(folder: Path, limit: int) -> None:
    """Remove what was used longest ago until the folder holds at most ``limit`` bytes."""
    entries = sorted(_entries(folder), key=lambda entry: entry[0], reverse=True)
    total = 0
    for _, size, path in entries:
        total += size
        if total > limit:
            path.unlink(missing_ok=True)


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            state = path.stat()
            yield state.st_mtime, state.st_size, path
