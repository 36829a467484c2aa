"""The compile-only plug-ins: which a target needs, and where they are.

They live in hloscope's cache folder and not in the user's environment, where
they would make every JAX program look for a driver. One folder a plug-in,
Python version, jaxlib version and platform; only the worker gets it on its path.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hloscope.capture.folders import cache_folder, locked
from hloscope.chips import ChipKind, Target
from hloscope.errors import TargetError

__all__ = [
    "COMPONENTS",
    "Component",
    "Installed",
    "Plugins",
    "components_of",
    "find_plugins",
    "installed_plugins",
    "is_available",
    "plugin_folder",
    "remove_plugins",
]

MANIFEST = "hloscope-plugin.json"
"""Written last into a plug-in's folder: a folder without it is not whole."""


@dataclass(frozen=True, slots=True)
class Component:
    """One folder's worth of wheels.

    Attributes:
        name: How its folder begins.
        title: What it is.
        distributions: The wheels, by the names of their distributions.
        download_bytes: About what the wheels weigh (Linux x86-64, the versions
            that JAX 0.10.2 and 0.12.0.1 ask for).
        disk_bytes: About what they take unpacked.
    """

    name: str
    title: str
    distributions: tuple[str, ...]
    download_bytes: int
    disk_bytes: int


COMPONENTS: dict[str, Component] = {
    component.name: component
    for component in (
        Component(
            name="cuda12",
            title="NVIDIA compiler plug-in",
            distributions=("jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12"),
            download_bytes=240_000_000,
            disk_bytes=610_000_000,
        ),
        Component(
            name="cudnn12",
            title="NVIDIA cuDNN library",
            distributions=("nvidia-cudnn-cu12",),
            download_bytes=717_000_000,
            disk_bytes=1_100_000_000,
        ),
        Component(
            name="tpu",
            title="TPU compiler plug-in",
            distributions=("libtpu",),
            download_bytes=214_000_000,
            disk_bytes=717_000_000,
        ),
    )
}

# The CUDA 13 plug-in of a user's environment compiles for the same targets.
_IN_ENVIRONMENT = {"cuda12": ("jax-cuda12-plugin", "jax-cuda13-plugin"), "tpu": ("libtpu",)}


@dataclass(frozen=True, slots=True)
class Installed:
    """A plug-in's folder in the cache.

    Attributes:
        component: What is in it.
        folder: Where it is.
        python: Tag of the Python that it was made for, for example ``cp311``.
        jaxlib: Version of jaxlib that it was made for.
        versions: Version of each distribution in it.
        size: Bytes on disk.
        usable: Whether it fits the Python and the jaxlib of this environment.
    """

    component: Component
    folder: Path
    python: str
    jaxlib: str
    versions: dict[str, str]
    size: int
    usable: bool


@dataclass(frozen=True, slots=True)
class Plugins:
    """What the worker needs for a target.

    Attributes:
        folders: Folders for its path; empty where the environment has all.
        versions: Version of each distribution in use.
    """

    folders: tuple[Path, ...]
    versions: dict[str, str]


def python_tag() -> str:
    """The running Python, as wheels call it: ``cp311``."""
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def jaxlib_version() -> str:
    """The jaxlib that is installed.

    Raises:
        TargetError: There is none.
    """
    try:
        return metadata.version("jaxlib")
    except metadata.PackageNotFoundError as error:
        raise TargetError(
            "jaxlib is not installed in this environment",
            hint="Install JAX beside hloscope: `pip install jax`.",
        ) from error


def plugin_folder(component: Component) -> Path:
    """Where the component for this Python, jaxlib and platform belongs."""
    platform = re.sub(r"[^A-Za-z0-9]+", "_", sysconfig.get_platform())
    name = f"{component.name}-jaxlib-{jaxlib_version()}-{python_tag()}-{platform}"
    return cache_folder() / "plugins" / name


def components_of(target: Target, *, with_cudnn: bool = False) -> tuple[Component, ...]:
    """What has to be there to compile for ``target`` without its chip.

    Raises:
        TargetError: Nothing compiles for it without the chip.
    """
    if target.chip is None or target.chip.kind is ChipKind.CPU:
        return ()
    if not target.chip.compiles_here:
        raise TargetError(
            f"nothing here compiles for {target.chip.title}",
            place=f"target {target.text}",
            hint=f"Hold a module or a recording against it instead: --chip {target.chip.name}.",
        )
    if target.chip.kind is ChipKind.TPU:
        return (COMPONENTS["tpu"],)
    if with_cudnn:
        return (COMPONENTS["cuda12"], COMPONENTS["cudnn12"])
    return (COMPONENTS["cuda12"],)


def find_plugins(target: Target) -> Plugins:
    """Where the plug-ins for ``target`` are.

    Raises:
        TargetError: One is missing or was made for another jaxlib; the hint is
            the command that puts it right.
    """
    folders: list[Path] = []
    versions: dict[str, str] = {}
    for component in components_of(target):
        here = _in_environment(component)
        if here:
            versions.update(here)
            continue
        found = read_manifest(plugin_folder(component))
        if found is None:
            raise _missing(target, component)
        folders.append(plugin_folder(component))
        versions.update(found["versions"])
    cudnn = COMPONENTS["cudnn12"]
    if target.chip is not None and target.chip.gpu is not None:
        extra = read_manifest(plugin_folder(cudnn))
        if extra is not None:
            folders.append(plugin_folder(cudnn))
            versions.update(extra["versions"])
    return Plugins(tuple(folders), versions)


def is_available(component: Component) -> bool:
    """Whether the component is in the environment or in the cache, fit for this jaxlib."""
    return bool(_in_environment(component)) or read_manifest(plugin_folder(component)) is not None


def _missing(target: Target, component: Component) -> TargetError:
    chip = target.text.partition(":")[0]
    others = sorted(
        {plugin.jaxlib for plugin in installed_plugins() if plugin.component == component}
        - {jaxlib_version()}
    )
    if others:
        what = (
            f"the {component.title} here was made for jaxlib {', '.join(others)}, and "
            f"{jaxlib_version()} is installed"
        )
    else:
        what = f"compiling for {chip} needs the {component.title}, which is not installed"
    return TargetError(
        what,
        place=f"target {target.text}",
        hint=f"Run `hloscope targets install {chip}` (downloads about "
        f"{component.download_bytes / 1e6:.0f} MB into hloscope's cache, not into your "
        "environment), or add --install.",
    )


def _in_environment(component: Component) -> dict[str, str]:
    """The component's versions if the user's environment has it, fit for this jaxlib."""
    for name in _IN_ENVIRONMENT.get(component.name, ()):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if satisfies(version, requirement_of(name)):
            return {name: version}
    return {}


@functools.cache
def requirement_of(distribution: str) -> str:
    """The versions that fit the installed jaxlib, as ``pip`` takes them.

    The CUDA plug-in carries jaxlib's own number; libtpu's is the one that
    jax's ``tpu`` extra names.
    """
    if distribution.startswith("jax-cuda"):
        return f"=={jaxlib_version()}"
    for requirement in metadata.requires("jax") or ():
        name, specifier = split_requirement(requirement)
        if name == distribution:
            return specifier
    return ""


def split_requirement(requirement: str) -> tuple[str, str]:
    """Name and version part of a requirement, extras and markers left out."""
    bare = requirement.partition(";")[0].strip()
    match = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^)]*)\)?$", bare)
    if match is None:
        return bare, ""
    return re.sub(r"[-_.]+", "-", match[1]).lower(), match[2].replace(" ", "")


def satisfies(version: str, specifier: str) -> bool:
    """Whether a version is what an ``==`` specifier (exact, or ending in ``.*``) asks for."""
    if not specifier.startswith("=="):
        return False
    wanted = specifier[2:]
    if wanted.endswith(".*"):
        return version == wanted[:-2] or version.startswith(wanted[:-1])
    return version == wanted


def read_manifest(folder: Path) -> dict[str, dict[str, str]] | None:
    """The versions that a plug-in's folder says it holds, or ``None`` if it is not whole."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        versions = {str(name): str(version) for name, version in manifest["versions"].items()}
        return {
            "versions": versions,
            "made_for": {
                "component": str(manifest["component"]),
                "python": str(manifest["python"]),
                "jaxlib": str(manifest["jaxlib"]),
            },
        }
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def installed_plugins() -> list[Installed]:
    """Every plug-in in the cache folder, also those made for other environments."""
    root = cache_folder() / "plugins"
    if not root.is_dir():
        return []
    found = []
    for folder in sorted(root.iterdir()):
        manifest = None if folder.name.startswith(".") else read_manifest(folder)
        if manifest is None or manifest["made_for"]["component"] not in COMPONENTS:
            continue
        made_for = manifest["made_for"]
        component = COMPONENTS[made_for["component"]]
        found.append(
            Installed(
                component=component,
                folder=folder,
                python=made_for["python"],
                jaxlib=made_for["jaxlib"],
                versions=manifest["versions"],
                size=_size(folder),
                usable=folder == plugin_folder(component),
            )
        )
    return found


def remove_plugins(plugins: Sequence[Installed]) -> int:
    """Delete plug-ins from the cache.

    Returns:
        Bytes that were freed.

    Raises:
        TargetError: A folder cannot be deleted.
    """
    freed = 0
    for plugin in plugins:
        doomed = plugin.folder.with_name(f".{plugin.folder.name}.removed")
        with locked(lock_of(plugin.folder)):
            try:
                shutil.rmtree(doomed, ignore_errors=True)
                # Renamed first, so that nobody meets half of it.
                plugin.folder.rename(doomed)
                shutil.rmtree(doomed)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise TargetError(
                    f"the plug-in cannot be deleted: {error.strerror or error}",
                    place=str(plugin.folder),
                    hint="Delete the folder by hand.",
                ) from error
        freed += plugin.size
    return freed


def lock_of(folder: Path) -> Path:
    """The lock file of a plug-in's folder."""
    return folder.with_name(f".{folder.name}.lock")


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
