"""Where hloscope keeps what it makes for itself, and who may write there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hloscope.errors import TargetError

__all__ = ["cache_folder", "locked"]


def cache_folder() -> Path:
    """``$HLOSCOPE_CACHE_DIR``, else ``$XDG_CACHE_HOME/hloscope``, else ``~/.cache/hloscope``."""
    own = os.environ.get("HLOSCOPE_CACHE_DIR")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    base = Path(shared) if shared else Path.home() / ".cache"
    return (base / "hloscope").absolute()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold ``path`` as a lock file, waiting for whoever holds it.

    The operating system lets go of the lock when its holder ends, however that
    happens, so a lock file that lies about means nothing.

    Raises:
        TargetError: The folder cannot be written to.
    """
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise TargetError(
            f"the cache folder cannot be written to: {error.strerror}",
            place=str(path.parent),
            hint="Set HLOSCOPE_CACHE_DIR to a folder that can be written to.",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
