"""What the user asks to be captured, read from the words of a command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from hloscope.chips import Target, parse_target
from hloscope.errors import UsageError

__all__ = [
    "KERNEL_PREFIX",
    "CaptureRequest",
    "OptionValue",
    "Source",
    "SourceKind",
    "check_mesh",
    "parse_compiler_options",
    "parse_mesh",
    "parse_options",
    "parse_source",
]

OptionValue = bool | int | float | str

KERNEL_PREFIX = "kernel:"


class SourceKind(StrEnum):
    """Where the step comes from."""

    ARCH = "arch"
    FILE = "file"
    KERNEL = "kernel"
    MODULE = "module"

    @property
    def is_ours(self) -> bool:
        """Whether the step is hloscope's own and not the user's."""
        return self in (SourceKind.ARCH, SourceKind.KERNEL)


@dataclass(frozen=True, slots=True)
class Source:
    """The step to look at.

    Attributes:
        kind: A named architecture, a Python file, one of hloscope's kernels, or an
            importable module.
        text: The architecture's name, the file's path, the kernel with the
            ``kernel:`` before it, or the module's name.
        attribute: The name inside the file or module; empty for the others.
    """

    kind: SourceKind
    text: str
    attribute: str = ""

    def __str__(self) -> str:
        return f"{self.text}:{self.attribute}" if self.attribute else self.text


@dataclass(frozen=True)
class CaptureRequest:
    """One step, one target, and how to build the one for the other.

    Attributes:
        source: The step.
        target: The chips, in words: ``cpu``, ``h100:8``, ``v5e:2x4``, ``local``.
        preset: Size of a named architecture.
        options: Further choices of a named architecture, as text.
        bad: Antipatterns to build into a named architecture.
        mesh: Axis name to size, in order; empty for none.
        compiler_options: XLA flags for this compile alone.
        timeout: Seconds for the whole capture, or ``None`` for no limit.
        install: Install a missing compile-only plug-in on the way.
        with_cudnn: Put cuDNN's library beside the CUDA plug-in when installing.
        use_cache: Read from and write to the cache.
    """

    source: Source
    target: str = "cpu"
    preset: str = "small"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    bad: tuple[str, ...] = ()
    mesh: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    compiler_options: Mapping[str, OptionValue] = field(
        default_factory=lambda: MappingProxyType({})
    )
    timeout: float | None = None
    install: bool = False
    with_cudnn: bool = False
    use_cache: bool = True

    def parsed_target(self) -> Target:
        """The target, with the mesh checked against its device count.

        Raises:
            TargetError: The chip is unknown.
            UsageError: The mesh does not fit the device count.
        """
        target = parse_target(self.target)
        if target.devices is not None:
            check_mesh(self.mesh, target.text, target.devices)
        return target

    def to_json(self) -> dict[str, Any]:
        """Everything that decides what is compiled, for the worker and the cache's key."""
        return {
            "source": {
                "kind": self.source.kind.value,
                "text": self.source.text,
                "attribute": self.source.attribute,
            },
            "target": self.target,
            "preset": self.preset,
            "options": dict(self.options),
            "bad": list(self.bad),
            # A list of pairs: the order of a mesh's axes decides the program.
            "mesh": [[axis, size] for axis, size in self.mesh.items()],
            "compiler_options": dict(self.compiler_options),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CaptureRequest:
        """The inverse of :meth:`to_json`, with the fields of the parent's side left out."""
        source = data["source"]
        return cls(
            source=Source(SourceKind(source["kind"]), source["text"], source["attribute"]),
            target=data["target"],
            preset=data["preset"],
            options=dict(data["options"]),
            bad=tuple(data["bad"]),
            mesh=dict(data["mesh"]),
            compiler_options=dict(data["compiler_options"]),
        )


def parse_source(text: str) -> Source:
    """Read ``path/file.py:attr``, ``package.module:attr`` or ``kernel:FAMILY/IMPLEMENTATION``.

    The attribute of a file may be left out; it is then ``step``.

    Raises:
        UsageError: The text is none of them.
    """
    if text.startswith(KERNEL_PREFIX):
        return Source(SourceKind.KERNEL, text)
    name, colon, attribute = text.rpartition(":")
    if not colon:
        name, attribute = text, "step"
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", attribute):
        raise UsageError(
            f"{attribute!r} is not the name of something in a Python file",
            place=text,
            hint="Write `path/file.py:name`, with the name of a Step or of a function.",
        )
    if name.endswith(".py") or "/" in name:
        return Source(SourceKind.FILE, name, attribute)
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        raise UsageError(
            f"{name!r} is neither a Python file nor the name of a module",
            place=text,
            hint="Write `path/file.py:name` or `package.module:name`.",
        )
    return Source(SourceKind.MODULE, name, attribute)


def parse_mesh(text: str) -> dict[str, int]:
    """Read ``data=2,fsdp=4`` into axis names and sizes, in that order.

    Raises:
        UsageError: An axis has no name, no size, or comes twice.
    """
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (piece.strip() for piece in part.partition("="))
        if not re.fullmatch(r"[^\W\d]\w*", name) or not re.fullmatch(r"[1-9][0-9]{0,5}", size):
            raise UsageError(
                f"{part.strip()!r} is not an axis and its size",
                place=f"--mesh {text}",
                hint="Write axes as `name=size`, separated by commas: `data=2,fsdp=4`.",
            )
        if name in axes:
            raise UsageError(
                f"the axis {name!r} comes twice",
                place=f"--mesh {text}",
                hint="Give each axis one size.",
            )
        axes[name] = int(size)
    return axes


def check_mesh(mesh: Mapping[str, int], target: str, devices: int) -> None:
    """Make sure that the axes multiply to the number of devices.

    Raises:
        UsageError: They do not; the message shows the arithmetic.
    """
    if not mesh:
        return
    asked = math.prod(mesh.values())
    if asked == devices:
        return
    shown = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    product = " x ".join(map(str, mesh.values()))
    arithmetic = f"{product} = {asked}" if len(mesh) > 1 else str(asked)
    plural = "device" if devices == 1 else "devices"
    raise UsageError(
        f"the mesh does not fit: {arithmetic} devices asked, the target {target} has {devices}",
        place=f"--mesh {shown}",
        hint=f"Choose sizes that multiply to {devices} {plural}, or a target of {asked} devices.",
    )


def parse_options(pairs: Iterable[str], flag: str = "--set") -> dict[str, str]:
    """Read ``key=value`` pairs.

    Args:
        pairs: The pairs.
        flag: What they were given with.

    Raises:
        UsageError: A pair has no key or no ``=``, or a key comes twice.
    """
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals or not key:
            raise UsageError(
                f"{pair!r} is not a key and a value",
                place=f"{flag} {pair}",
                hint=f"Write `{flag} key=value`.",
            )
        if key in options:
            raise UsageError(
                f"{key!r} comes twice", place=f"{flag} {pair}", hint="Give it one value."
            )
        options[key] = value
    return options


def parse_compiler_options(pairs: Iterable[str]) -> dict[str, OptionValue]:
    """Read XLA flags as ``key=value``, with the type that the value looks like.

    ``true`` and ``false`` become booleans, numbers become numbers, and the rest
    stays text; a leading ``--`` of the key is taken off.

    Raises:
        UsageError: A pair has no key or no ``=``.
    """
    options = parse_options(pairs, "--xla")
    return {key.removeprefix("--"): _typed(value) for key, value in options.items()}


def _typed(value: str) -> OptionValue:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
