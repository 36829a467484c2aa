"""The chips to compile for, and the plug-ins that this takes, as reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hloscope import units
from hloscope.capture.plugin_install import install_component
from hloscope.capture.plugins import (
    COMPONENTS,
    Component,
    Installed,
    components_of,
    find_plugins,
    installed_plugins,
    remove_plugins,
)
from hloscope.chips import CHIPS, Chip, parse_target
from hloscope.errors import TargetError, UsageError
from hloscope.pipeline.findings import Column, Quantity, Report, Table, Unit

__all__ = ["install_targets", "list_targets", "remove_targets"]


def list_targets() -> Report:
    """Every chip with its peak and whether it can be compiled for now, and the plug-ins."""
    columns = (
        Column("target"),
        Column("bf16 peak"),
        Column("memory", Unit.BYTES),
        Column("compile"),
        Column("what it is"),
    )
    chips = Table("targets", "Targets", columns, tuple(_chip_row(chip) for chip in CHIPS.values()))
    note = (
        "NAME:COUNT for several NVIDIA chips or simulated CPU devices, such as h100:8; "
        "NAME:TOPOLOGY for TPUs, such as v5e:2x4; 'local' for what is attached."
    )
    return Report("targets", "", {}, tables=(chips, _plugin_table()), notes=(note,))


def install_targets(
    names: Sequence[str],
    *,
    with_cudnn: bool = False,
    wheels: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Put what the targets need into hloscope's cache.

    Args:
        names: Targets, such as ``h100`` or ``v5e:2x4``.
        with_cudnn: Also cuDNN's library, for NVIDIA targets.
        wheels: A folder of wheels to install from, instead of the package index.
        progress: Told in one line what is being done.

    Raises:
        TargetError: A chip is unknown, or the installation fails.
        UsageError: ``wheels`` is no folder.
    """
    if wheels is not None and not wheels.is_dir():
        raise UsageError("there is no such folder", place=f"--from {wheels}")
    wanted = _components(names, with_cudnn=with_cudnn)
    for component in wanted:
        install_component(component, wheels=wheels, progress=progress)
    done = "Ready to compile for " + ", ".join(names) + "."
    if not wanted:
        done += " Nothing had to be installed: JAX itself compiles for it."
    return Report("targets install", ", ".join(names), {}, tables=(_plugin_table(),), summary=done)


def remove_targets(names: Sequence[str]) -> Report:
    """Delete the plug-ins of the targets, whichever jaxlib they were made for.

    Args:
        names: Targets; all targets that share a plug-in lose it.

    Raises:
        TargetError: A chip is unknown, or a folder cannot be deleted.
    """
    wanted = _components(names, with_cudnn=True)
    doomed = [plugin for plugin in installed_plugins() if plugin.component in wanted]
    freed = remove_plugins(doomed)
    titles = ", ".join(dict.fromkeys(plugin.component.title for plugin in doomed))
    done = f"Removed {titles}: {units.byte_size(freed)} freed." if doomed else "Nothing to remove."
    return Report("targets remove", ", ".join(names), {}, tables=(_plugin_table(),), summary=done)


def _components(names: Sequence[str], *, with_cudnn: bool) -> list[Component]:
    found = [
        component
        for name in names
        for component in components_of(parse_target(name), with_cudnn=with_cudnn)
    ]
    return list(dict.fromkeys(found))


def _chip_row(chip: Chip) -> tuple[str | Quantity, ...]:
    peak = chip.peaks.get("bf16")
    memory = chip.memory_bytes
    return (
        chip.name,
        "" if peak is None else units.flop_rate(peak),
        "" if memory is None else Quantity("memory", memory, Unit.BYTES),
        _readiness(chip),
        chip.title,
    )


def _readiness(chip: Chip) -> str:
    if not chip.compiles_here:
        return "no"
    try:
        find_plugins(parse_target(chip.name))
    except TargetError:
        needed = components_of(parse_target(chip.name))
        there = {plugin.component for plugin in installed_plugins()}
        return "other jaxlib" if there & set(needed) else "install"
    return "ready"


def _plugin_table() -> Table:
    columns = (
        Column("plug-in"),
        Column("for jaxlib"),
        Column("python"),
        Column("size", Unit.BYTES),
        Column("fits here"),
        Column("versions"),
    )
    rows = tuple(_plugin_row(plugin) for plugin in installed_plugins())
    sizes = ", ".join(f"{c.title} {units.byte_size(c.download_bytes)}" for c in COMPONENTS.values())
    note = f"'hloscope targets install NAME' downloads about: {sizes}."
    return Table("plugins", "Plug-ins in hloscope's cache", columns, rows, note)


def _plugin_row(plugin: Installed) -> tuple[str | Quantity, ...]:
    return (
        plugin.component.name,
        plugin.jaxlib,
        plugin.python,
        Quantity("size", plugin.size, Unit.BYTES),
        "yes" if plugin.usable else "no",
        ", ".join(f"{name} {version}" for name, version in plugin.versions.items()),
    )
