"""Putting compile-only plug-ins into hloscope's cache folder."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from hloscope.capture.folders import locked
from hloscope.capture.plugins import (
    MANIFEST,
    Component,
    jaxlib_version,
    lock_of,
    plugin_folder,
    python_tag,
    read_manifest,
    requirement_of,
    split_requirement,
)
from hloscope.errors import TargetError

__all__ = ["install_component"]

Progress = Callable[[str], None]
"""Told, in one line, what is being done."""


def install_component(
    component: Component,
    *,
    wheels: Path | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> Path:
    """Install ``component`` for this Python and jaxlib, unless it is there already.

    It is made beside its place and renamed into it, so that an install that is
    interrupted leaves nothing half made; a second one that runs at the same
    time waits for the first and finds its work done.

    Args:
        component: What to install.
        wheels: A folder with the wheels, instead of the package index.
        progress: Told what is being done.
        again: Replace what is there.

    Returns:
        The folder.

    Raises:
        TargetError: The wheels do not come, or do not fit on the disk.
    """
    tell = progress or _silent
    folder = plugin_folder(component)
    if not again and read_manifest(folder) is not None:
        tell(f"{component.title}: already there")
        return folder
    tell(f"{component.title}: waiting for its turn")
    with locked(lock_of(folder)):
        if not again and read_manifest(folder) is not None:
            tell(f"{component.title}: already there")
            return folder
        # Whoever left these behind is gone, or it would hold the lock.
        for stale in folder.parent.glob(f".{folder.name}.*.partial"):
            shutil.rmtree(stale, ignore_errors=True)
        if wheels is None:
            _check_room(component, folder.parent)
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        try:
            _fill(component, partial, wheels, tell)
            if folder.exists():
                shutil.rmtree(folder)
            partial.rename(folder)
        except OSError as error:
            raise TargetError(
                f"the {component.title} cannot be put in place: {error.strerror or error}",
                place=str(folder),
                hint="Free some space, or set HLOSCOPE_CACHE_DIR to another disk.",
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    tell(f"{component.title}: installed")
    return folder


def _silent(line: str) -> None:
    del line


def _check_room(component: Component, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    # The wheels lie on the disk beside what is unpacked from them.
    needed = component.disk_bytes + component.download_bytes
    if free < needed:
        raise TargetError(
            f"the disk has {free / 1e6:.0f} MB free, and the {component.title} needs about "
            f"{needed / 1e6:.0f} MB while it is installed",
            place=str(folder),
            hint="Free some space, or set HLOSCOPE_CACHE_DIR to another disk.",
        )


def _fill(component: Component, folder: Path, wheels: Path | None, tell: Progress) -> None:
    first, later = _requirements(component)
    _install(component, first, folder, wheels, tell)
    if later:
        # The plug-in itself says which of NVIDIA's packages it was built with.
        _install(component, _named_by_plugin(folder, later), folder, wheels, tell)
    versions = {
        split_requirement(found.metadata["Name"])[0]: found.version
        for found in metadata.distributions(path=[str(folder)])
    }
    missing = [name for name in component.distributions if name not in versions]
    if missing:
        raise TargetError(
            f"the installer ran, and {', '.join(missing)} is not there",
            place=str(folder),
            hint="Check that the wheels are for this platform.",
        )
    manifest = {
        "component": component.name,
        "python": python_tag(),
        "jaxlib": jaxlib_version(),
        "versions": versions,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _requirements(component: Component) -> tuple[list[str], list[str]]:
    """Requirements known from the start, and distributions whose versions the plug-in names."""
    if component.name == "cudnn12":
        return [_cudnn_requirement()], []
    first = []
    later = []
    for name in component.distributions:
        if name.startswith("nvidia-"):
            later.append(name)
        else:
            first.append(name + requirement_of(name))
    return first, later


def _cudnn_requirement() -> str:
    from hloscope.capture.plugins import COMPONENTS

    beside = plugin_folder(COMPONENTS["cuda12"])
    return _named_by_plugin(beside, ["nvidia-cudnn-cu12"])[0]


def _named_by_plugin(folder: Path, names: Sequence[str]) -> list[str]:
    named: dict[str, str] = {}
    for found in metadata.distributions(path=[str(folder)]):
        for requirement in found.requires or ():
            name, specifier = split_requirement(requirement)
            named.setdefault(name, specifier)
    return [name + named.get(name, "") for name in names]


def _install(
    component: Component,
    requirements: Sequence[str],
    folder: Path,
    wheels: Path | None,
    tell: Progress,
) -> None:
    options = ["--no-deps", "--target", str(folder)]
    if wheels is not None:
        if not wheels.is_dir():
            raise TargetError(
                "there is no such folder of wheels",
                place=str(wheels),
                hint="Give the folder that holds the wheels: --from DIR.",
            )
        options += ["--no-index", "--find-links", str(wheels)]
    command = [*_installer(), *options, *requirements]
    tell(f"{component.title}: {' '.join(requirements)}")
    last: deque[str] = deque(maxlen=12)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        for line in _lines(process):
            last.append(line)
            if line.startswith(("Downloading", "Collecting", "Installing", "Prepared")):
                tell(f"{component.title}: {line}")
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code:
        raise _failed(component, requirements, wheels, list(last))


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip():
            yield line.strip()


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "install"]
        return [*pip, "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise TargetError(
        "neither pip nor uv is there to install a plug-in with",
        place=sys.prefix,
        hint="Run `python -m ensurepip`, or install uv.",
    )


def _failed(
    component: Component, requirements: Sequence[str], wheels: Path | None, last: list[str]
) -> TargetError:
    text = "\n".join(last)
    lowered = text.lower()
    if "no space left" in lowered or "disk quota" in lowered:
        what = "the disk is full"
        hint = "Free some space, or set HLOSCOPE_CACHE_DIR (and TMPDIR) to another disk."
    elif wheels is not None:
        what = "the folder of wheels does not hold what is needed"
        hint = f"Put wheels for {', '.join(requirements)} and this platform into it."
    elif any(sign in lowered for sign in _NETWORK_SIGNS):
        what = "the package index cannot be reached"
        hint = _by_hand(requirements)
    elif "from versions: none" in lowered:
        # pip says the same of an index that is out of reach and of one that is empty.
        what = "the package index offers no version of it: it may be out of reach"
        hint = _by_hand(requirements)
    else:
        what = "the package index has no wheel that fits"
        hint = "Check that JAX publishes this plug-in for your platform and jaxlib version."
    return TargetError(
        f"the {component.title} could not be installed: {what}",
        place=" ".join(requirements),
        detail="\n".join(f"    {line}" for line in last),
        hint=hint,
    )


_NETWORK_SIGNS = (
    "connection",
    "network is unreachable",
    "timed out",
    "temporary failure",
    "failed to resolve",
    "sslerror",
    "proxyerror",
    "failed to fetch",
)


def _by_hand(requirements: Sequence[str]) -> str:
    quoted = " ".join(f'"{requirement}"' for requirement in requirements)
    return (
        "Check the network and pip's index settings, or carry the wheels by hand: "
        f"`pip download --no-deps {quoted}` elsewhere, then --from DIR."
    )
