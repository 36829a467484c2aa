"""The architectures that hloscope can build, by name, without importing JAX.

Each entry says what can be asked of an architecture: its presets, its options
and the mesh axes that it can be sharded over. The model's own module, and with
it JAX and flax, is imported only when a step is built.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hloscope.capture.step import Step
from hloscope.errors import UsageError

if TYPE_CHECKING:
    import jax
    from jax.sharding import AbstractMesh, Mesh

    from hloscope.models.training import Training

__all__ = ["ArchSpec", "Option", "get", "names"]

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
    """

    name: str
    help: str
    default: str | None = None
    choices: tuple[str, ...] = ()
    listing: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it may have, in words."""
        return (*self.choices, *(f"{word}:A+B" for word in self.listing)) or ("a whole number",)

    def check(self, value: str) -> str:
        """Return ``value`` in its one spelling.

        Raises:
            UsageError: When it is none of the choices, or not a positive integer.
        """
        place = f"--set {self.name}={value}"
        if self.choices:
            if value in self.choices or self._lists(value):
                return value
            raise UsageError(
                f"{value!r} is no value of {self.name}",
                place=place,
                hint=_nearest(value, self.values, "values"),
            )
        if not (value.isascii() and value.isdigit()) or int(value) == 0:
            raise UsageError(
                f"{self.name} takes a positive integer, not {value!r}",
                place=place,
                hint=f"Give a whole number of 1 or more, such as {self.name}=8.",
            )
        return str(int(value))

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
        module: Dotted path of the module whose ``training(preset, settings)``
            builds it.
    """

    name: str
    description: str
    presets: tuple[str, ...]
    options: tuple[Option, ...]
    axes: tuple[str, ...]
    module: str

    def check(self, options: Mapping[str, str]) -> None:
        """See whether there are such options and values, without building anything.

        Raises:
            UsageError: When an option or a value does not exist.
        """
        self._settings(options)

    def training(self, preset: str, options: Mapping[str, str] | None = None) -> Training:
        """Build the model's training: its step, initial state and example batch.

        Args:
            preset: One of ``presets``.
            options: Option name to value, as given with ``--set``.

        Raises:
            UsageError: When the preset, an option or a value does not exist.
        """
        if preset not in self.presets:
            raise UsageError(
                f"{self.name} has no preset {preset!r}",
                place=f"--preset {preset}",
                hint=_nearest(preset, self.presets, "presets"),
            )
        settings = self._settings(options or {})
        builder = importlib.import_module(self.module)
        training: Training = builder.training(preset, settings)
        return training

    def build(
        self,
        preset: str,
        options: Mapping[str, str] | None = None,
        mesh: Mapping[str, int] | Mesh | AbstractMesh | None = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> Step:
        """Build the training step with abstract arguments; allocates no array.

        Args:
            preset: One of ``presets``.
            options: Option name to value, as given with ``--set``.
            mesh: Axis name to size in order, or a JAX mesh. Without one, or
                with no axis, the step carries no sharding at all.
            devices: The devices that a mesh given by sizes is laid over; all of
                JAX's default backend where not given. Not used otherwise.

        Raises:
            UsageError: When the preset, an option, a value or a mesh axis does
                not exist, or the mesh fits neither the devices nor the batch.
        """
        if mesh is not None:
            self._check_axes(mesh.keys() if isinstance(mesh, Mapping) else mesh.axis_names)
        return self.training(preset, options).build(mesh, devices)

    def _settings(self, options: Mapping[str, str]) -> dict[str, str]:
        known = {option.name: option for option in self.options}
        settings = {name: o.default for name, o in known.items() if o.default is not None}
        for name, value in options.items():
            if name not in known:
                raise UsageError(
                    f"{self.name} has no option {name!r}",
                    place=f"--set {name}={value}",
                    hint=_nearest(name, tuple(known), "options"),
                )
            settings[name] = known[name].check(value)
        return settings

    def _check_axes(self, axes: Iterable[Any]) -> None:
        for axis in axes:
            if axis not in self.axes:
                raise UsageError(
                    f"{self.name} has no sharding rule for the mesh axis {axis!r}",
                    place="--mesh",
                    hint=_nearest(str(axis), self.axes, "mesh axes"),
                )


def names() -> tuple[str, ...]:
    """Names of all architectures, in alphabetical order."""
    return tuple(sorted(_ARCHS))


def get(name: str) -> ArchSpec:
    """Look an architecture up.

    Raises:
        UsageError: When there is none of that name; it gives the nearest ones.
    """
    if name in _ARCHS:
        return _ARCHS[name]
    raise UsageError(
        f"no architecture {name!r}",
        place=f"--arch {name}",
        hint=_nearest(name, names(), "architectures"),
    )


def _nearest(word: str, known: Sequence[str], kind: str) -> str:
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    asked = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"{asked}The {kind} are: {', '.join(known)}."


_DTYPE = Option(
    "dtype",
    "type of activations and products; parameters stay float32",
    "bfloat16",
    ("bfloat16", "float32"),
)
_BATCH = Option("batch", "samples in a step, over all devices")
_ATTENTION = Option(
    "attention",
    "xla: jax.nn.dot_product_attention; reference: einsum, float32 softmax, einsum",
    "xla",
    ("xla", "reference"),
)
_REMAT = Option(
    "remat",
    "what a layer recomputes in the backward pass: nothing, all, all but its products, or all but "
    "the values of these names, which offload keeps in the host's memory",
    "none",
    ("none", "full", "dots"),
    ("names", "offload"),
)
_SCAN_LAYERS = Option(
    "scan_layers",
    "stack the layers' parameters and loop over them, rather than unroll",
    "false",
    ("false", "true"),
)

_POSITIONS = Option(
    "positions",
    "tables of sines: computed in the step, or baked into it as constants",
    "computed",
    ("computed", "baked"),
)

_ARCHS = {
    spec.name: spec
    for spec in (
        ArchSpec(
            name="unet",
            description="text-conditioned diffusion UNet on 64x64 images, noise prediction",
            presets=("small", "smoke"),
            options=(_DTYPE, _BATCH, _ATTENTION),
            axes=("data", "fsdp"),
            module="hloscope.models.unet",
        ),
        ArchSpec(
            name="causal_transformer",
            description="decoder-only language model with a tied float32 head, next token",
            presets=("small", "smoke"),
            options=(_DTYPE, _BATCH, _ATTENTION, _REMAT, _SCAN_LAYERS),
            axes=("data", "fsdp"),
            module="hloscope.models.causal_transformer",
        ),
        ArchSpec(
            name="hierarchical_mmdit",
            description="diffusion transformer over text and 64x64 images in three stages",
            presets=("small", "smoke"),
            options=(_DTYPE, _BATCH, _ATTENTION, _REMAT, _POSITIONS),
            axes=("data", "fsdp"),
            module="hloscope.models.hierarchical_mmdit",
        ),
    )
}
