"""Which versions of what are at work."""

from __future__ import annotations

from importlib import metadata

__all__ = ["installed", "version_line"]


def installed(distribution: str) -> str | None:
    """The installed version of a distribution, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def version_line() -> str:
    """For example ``hloscope 0.1.0 (jax 0.10.2, jaxlib 0.10.2)``."""
    parts = [f"{name} {installed(name) or 'not installed'}" for name in ("jax", "jaxlib")]
    return f"hloscope {installed('hloscope') or 'unknown'} ({', '.join(parts)})"
