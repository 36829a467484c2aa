"""Whether the user's program keeps its compiles in JAX's persistent cache. Runs in the worker."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import jax

__all__ = ["has_persistent_cache"]

_NAME = b"compilation_cache"
"""What is in every way to set it up: the options' names and the module's."""


def has_persistent_cache() -> bool:
    """Whether a folder is set, or the program's own text speaks of the cache.

    The environment and what modules do when they are imported count, once the
    step has been imported. A ``main`` that sets the cache up has not run then, so
    modules of the user's that only name it count as well.
    """
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    return bool(folder) or any(map(_speaks_of_it, _own_files()))


def _own_files() -> list[Path]:
    """Files of imported modules that are neither installed nor Python's or hloscope's own."""
    installed = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    installed.add(Path(__file__).resolve().parent.parent)
    files = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            path = Path(file).resolve()
            if not any(path.is_relative_to(folder) for folder in installed):
                files.append(path)
    return files


def _speaks_of_it(file: Path) -> bool:
    try:
        return _NAME in file.read_bytes()
    except OSError:
        return False
