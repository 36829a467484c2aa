"""Making the file names in a program the same on every machine."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from hloscope.ir.metadata import is_library_file

__all__ = ["library_folders", "shorten_paths", "source_prefix_pattern"]


def library_folders() -> tuple[str, ...]:
    """Where installed packages and the standard library lie, longest first."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("purelib", "platlib", "stdlib", "platstdlib")}
    folders.update(site.getsitepackages())
    folders.add(site.getusersitepackages())
    folders.update(os.path.realpath(folder) for folder in tuple(folders))
    return tuple(sorted(folders, key=len, reverse=True))


def _prefixes(extra: Iterable[str]) -> list[str]:
    """Folders to name files relative to, those that win first, as regular expressions.

    Libraries come before the current folder, which may hold the environment
    that they lie in. An editable install has hloscope's own files under its
    repository.
    """
    rest = sorted({*extra, *sys.path}, key=len, reverse=True)
    repository = str(Path(__file__).resolve().parents[2])
    others = (repository, str(Path.cwd()), *rest)
    libraries = [_library(folder) for folder in map(_absolute, library_folders()) if folder]
    plain = [rf"{re.escape(folder)}/" for folder in map(_absolute, others) if folder]
    return list(dict.fromkeys((*libraries, *plain)))


def _library(folder: str) -> str:
    """Keeps the name of the folder, by which a library's file is told from the user's.

    hloscope's own architectures are no library of the step that is looked at:
    they are the step.
    """
    above, name = os.path.split(folder)
    if not is_library_file(f"{name}/"):
        return rf"{re.escape(folder)}/"
    inside = rf"{re.escape(folder)}/(?={__name__.partition('.')[0]}/)"
    return rf"{inside}|{re.escape(above.rstrip('/'))}/(?={re.escape(name)}/)"


def _absolute(folder: str) -> str:
    return os.path.abspath(folder).rstrip("/") if folder else ""


def source_prefix_pattern(extra: Iterable[str] = ()) -> str:
    """A regular expression for the part of a source path that only this machine has.

    JAX removes what it matches (``jax_hlo_source_file_canonicalization_regex``).
    Of an absolute path under no known folder the last two components are kept.

    Args:
        extra: More folders whose files are named relative to them.
    """
    known = "|".join(_prefixes(extra))
    return rf"^(?:{known}|/(?:[^/]+/)*(?=[^/]+/[^/]+$)|/(?=[^/]+$))"


def shorten_paths(text: str) -> str:
    """Cut every absolute path inside ``text`` to its last component.

    For flags and messages that an artifact keeps and that may name folders of
    the machine.
    """
    return re.sub(r"(?<![\w/.])~?/(?:[^\s/,;:'\"=]+/)+([^\s/,;:'\"=]*)", r".../\1", text)
