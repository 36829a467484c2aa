"""What can be asked of an architecture, checked without importing JAX.

The model's own module, and with it JAX and flax, is imported only when a step is built.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hloscope.capture.step import Step
from hloscope.chips import ChipKind
from hloscope.errors import UsageError
from hloscope.models.antipatterns import ANTIPATTERNS, Antipattern

if TYPE_CHECKING:
    import jax
    from jax.sharding import AbstractMesh, Mesh

    from hloscope.models.training import Training

__all__ = ["ArchSpec", "Option", "nearest"]

_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Option:
    """One ``--set name=value`` that an architecture takes.

    Attributes:
        name: The same name for every architecture that has the option.
        help: One line on what it changes.
        default: Value where none is given; ``None`` leaves it to the preset.
        choices: The values it may have, the default first; empty for a positive
            integer.
        listing: Words that a list of names may follow, as in ``names:a+b``.
        kinds: What alone compiles a value, where not everything does.
    """

    name: str
    help: str
    default: str | None = None
    choices: tuple[str, ...] = ()
    listing: tuple[str, ...] = ()
    kinds: Mapping[str, ChipKind] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it may have, in words."""
        return (*self.choices, *(f"{word}:A+B" for word in self.listing)) or ("a whole number",)

    def check(self, value: str, kind: ChipKind | None = None) -> str:
        """Return ``value`` in its one spelling.

        Args:
            value: As given with ``--set``.
            kind: What it is compiled for, where that is known.

        Raises:
            UsageError: When it is none of the choices, or not a positive integer,
                or does not compile for that kind of chip.
        """
        place = f"--set {self.name}={value}"
        if self.choices:
            if value not in self.choices and not self._lists(value):
                raise UsageError(
                    f"{value!r} is no value of {self.name}",
                    place=place,
                    hint=self._another(value),
                )
            only = self.kinds.get(value)
            if kind is not None and only is not None and kind is not only:
                raise UsageError(
                    f"{self.name}={value} compiles for a {only.upper()}, not for a {kind.upper()}",
                    place=place,
                    hint=f"Choose another --target, or one of: {self._fitting(kind)}.",
                )
            return value
        if not (value.isascii() and value.isdigit()) or int(value) == 0:
            raise UsageError(
                f"{self.name} takes a positive integer, not {value!r}",
                place=place,
                hint=f"Give a whole number of 1 or more, such as {self.name}=8.",
            )
        return str(int(value))

    def _fitting(self, kind: ChipKind) -> str:
        return ", ".join(v for v in self.choices if self.kinds.get(v, kind) is kind)

    def _another(self, value: str) -> str:
        """What to write in place of a value that is none."""
        word, _, names = value.partition(":")
        if word in self.listing:
            example = (
                "+".join(filter(None, re.split(r"[^\w.-]+", names))) or "attention_out+mlp_out"
            )
            return f"Write names with + between them: {self.name}={word}:{example}."
        return nearest(value, self.values, "values")

    def _lists(self, value: str) -> bool:
        word, _, names = value.partition(":")
        return word in self.listing and all(_NAME.fullmatch(name) for name in names.split("+"))


@dataclass(frozen=True, slots=True)
class ArchSpec:
    """What one architecture is and what can be asked of it.

    Attributes:
        name: As in ``--arch NAME``.
        description: One line.
        presets: Sizes; the default stands first.
        options: What ``--set`` takes.
        axes: Mesh axes that the model's sharding rules understand.
        module: Dotted path of the module whose ``training(preset, settings, bad)``
            builds it.
        bad: Names of the antipatterns that ``--bad`` can build into it.
    """

    name: str
    description: str
    presets: tuple[str, ...]
    options: tuple[Option, ...]
    axes: tuple[str, ...]
    module: str
    bad: tuple[str, ...]

    @property
    def antipatterns(self) -> tuple[Antipattern, ...]:
        """What ``--bad`` can build into it."""
        return tuple(ANTIPATTERNS[name] for name in self.bad)

    def check(
        self,
        options: Mapping[str, str],
        bad: Collection[str] = (),
        kind: ChipKind | None = None,
    ) -> None:
        """See whether there are such options, values and switches, without building anything.

        Args:
            options: Option name to value, as given with ``--set``.
            bad: Switches, as given with ``--bad``.
            kind: What it is compiled for, where that is known.

        Raises:
            UsageError: When an option, a value or a switch does not exist, a
                value does not compile for that kind of chip, or an option and a
                switch do not go together.
        """
        self._settings(options, kind)
        for name in bad:
            if name not in self.bad:
                raise UsageError(
                    f"{self.name} has no bad switch {name!r}",
                    place=f"--bad {name}",
                    hint=nearest(name, self.bad, "switches"),
                )
            switch = ANTIPATTERNS[name]
            for option, value in (*switch.sets.items(), *switch.needs.items()):
                given = options.get(option, value)
                if given != value:
                    does = "sets" if option in switch.sets else "does nothing without"
                    raise UsageError(
                        f"--bad {name} {does} {option}={value}",
                        place=f"--set {option}={given}",
                        hint="Leave one of the two out.",
                    )

    def training(
        self,
        preset: str,
        options: Mapping[str, str] | None = None,
        bad: Collection[str] = (),
    ) -> Training:
        """Build the model's training: its step, initial state and example batch.

        Args:
            preset: One of ``presets``.
            options: Option name to value, as given with ``--set``.
            bad: Antipatterns to build in, as given with ``--bad``.

        Raises:
            UsageError: When the preset, an option, a value or a switch does not
                exist.
        """
        if preset not in self.presets:
            raise UsageError(
                f"{self.name} has no preset {preset!r}",
                place=f"--preset {preset}",
                hint=nearest(preset, self.presets, "presets"),
            )
        self.check(options or {}, bad)
        builder = importlib.import_module(self.module)
        settings = self._settings(options or {})
        for name in bad:
            settings |= ANTIPATTERNS[name].sets
        training: Training = builder.training(preset, settings, bad)
        return training

    def build(
        self,
        preset: str,
        options: Mapping[str, str] | None = None,
        mesh: Mapping[str, int] | Mesh | AbstractMesh | None = None,
        devices: Sequence[jax.Device] | None = None,
        bad: Collection[str] = (),
    ) -> Step:
        """Build the training step with abstract arguments; allocates no state.

        Args:
            preset: One of ``presets``.
            options: Option name to value, as given with ``--set``.
            mesh: Axis name to size in order, or a JAX mesh. Without one, or
                with no axis, the step carries no sharding at all.
            devices: The devices that a mesh given by sizes is laid over; all of
                JAX's default backend where not given. Not used otherwise.
            bad: Antipatterns to build in, as given with ``--bad``.

        Raises:
            UsageError: When the preset, an option, a value, a switch or a mesh axis
                does not exist, or the mesh fits neither the devices nor the batch.
        """
        if mesh is not None:
            self._check_axes(mesh.keys() if isinstance(mesh, Mapping) else mesh.axis_names)
        return self.training(preset, options, bad).build(mesh, devices)

    def _settings(self, options: Mapping[str, str], kind: ChipKind | None = None) -> dict[str, str]:
        known = {option.name: option for option in self.options}
        settings = {name: o.default for name, o in known.items() if o.default is not None}
        for name, value in options.items():
            if name not in known:
                raise UsageError(
                    f"{self.name} has no option {name!r}",
                    place=f"--set {name}={value}",
                    hint=nearest(name, tuple(known), "options"),
                )
            settings[name] = known[name].check(value, kind)
        return settings

    def _check_axes(self, axes: Iterable[Any]) -> None:
        for axis in axes:
            if axis not in self.axes:
                raise UsageError(
                    f"{self.name} has no sharding rule for the mesh axis {axis!r}",
                    place="--mesh",
                    hint=nearest(str(axis), self.axes, "mesh axes"),
                )


def nearest(word: str, known: Sequence[str], kind: str) -> str:
    """What to write in place of a word that is none of those known.

    Args:
        word: As it was given.
        known: The words that there are.
        kind: What they are, in the plural.
    """
    same = [one for one in known if one.lower() == word.lower()]
    close = same or difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    asked = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"{asked}The {kind} are: {', '.join(known)}."
