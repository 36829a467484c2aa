"""Finds the analyses and rules that stand under ``hloscope.passes``."""

from __future__ import annotations

import importlib
import pkgutil

__all__ = ["load_passes"]


def load_passes(package: str = "hloscope.passes") -> tuple[str, ...]:
    """Import every module under a package, so that its decorators register.

    Importing twice changes nothing. The package is named, not imported, here:
    passes build on the pipeline and never the other way round.

    Returns:
        The modules' names, in the order of import.
    """
    root = importlib.import_module(package)
    names = sorted(
        found.name for found in pkgutil.walk_packages(root.__path__, prefix=f"{package}.")
    )
    for name in names:
        importlib.import_module(name)
    return tuple(names)
