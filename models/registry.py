"""The architectures that hloscope can build, by name, without importing JAX.

Each entry says what can be asked of an architecture: its presets, its options,
its bad switches and the mesh axes that it can be sharded over. The model's own
module, and with it JAX and flax, is imported only when a step is built.
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
        return _nearest(value, self.values, "values")

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
                    hint=_nearest(name, self.bad, "switches"),
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
                hint=_nearest(preset, self.presets, "presets"),
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
                    hint=_nearest(name, tuple(known), "options"),
                )
            settings[name] = known[name].check(value, kind)
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
    same = [one for one in known if one.lower() == word.lower()]
    close = same or difflib.get_close_matches(word, known, n=3, cutoff=0.5)
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
    "xla: jax.nn.dot_product_attention; reference: einsum, float32 softmax, einsum; "
    "cudnn: cuDNN's fused kernel; flash: Pallas's kernel for TPUs",
    "xla",
    ("xla", "reference", "cudnn", "flash"),
    kinds=MappingProxyType({"cudnn": ChipKind.GPU, "flash": ChipKind.TPU}),
)
_REMAT = Option(
    "remat",
    "what a layer recomputes in the backward pass: nothing, all, all but its products, or all but "
    "the values of these names, which offload keeps in the host's memory",
    "none",
    ("none", "full", "dots", "dots_with_no_batch_dims"),
    ("names", "offload"),
)
_SCAN_LAYERS = Option(
    "scan_layers",
    "stack the layers' parameters and loop over them, rather than unroll",
    "false",
    ("false", "true"),
)
_SCANNED_LAYERS = Option(
    "scan_layers", _SCAN_LAYERS.help, "true", tuple(reversed(_SCAN_LAYERS.choices))
)
_OPTIMIZER = Option(
    "optimizer",
    "muon: orthogonal updates of the matrices, Adam for the rest",
    "adamw",
    ("adamw", "muon"),
)
_STATE_DTYPE = Option(
    "state_dtype",
    "type of the optimizer's moments; bfloat16 is rounded at random",
    "float32",
    ("float32", "bfloat16"),
)
_QUANTIZE = Option(
    "quantize",
    "type of the products of the layers' linear parts: fp8 forward and backward, int8 forward",
    "none",
    ("none", "fp8", "int8"),
)
_HEAD_CHUNKS = Option(
    "head_chunks",
    "parts of a sequence that the vocabulary head and its loss take one after another, the logits "
    "of each computed again in the backward pass; 1 where not given",
)
_EXPERTS = Option(
    "experts",
    "ragged: tokens sorted by expert, jax.lax.ragged_dot; dense: every expert on every token; "
    "capacity: a fixed number of places an expert, by products with one-hot matrices",
    "ragged",
    ("ragged", "dense", "capacity"),
)

_TRAINING = (_DTYPE, _BATCH, _ATTENTION, _OPTIMIZER, _STATE_DTYPE)
_WITHOUT_ATTENTION = tuple(option for option in _TRAINING if option is not _ATTENTION)
_PRESETS = ("small", "smoke", "base")
_AXES = ("data", "fsdp")
_TENSOR = (*_AXES, "tensor")
_ALL_AXES = (*_TENSOR, "sequence")
_CAPTIONED = ("closed-over", "per-step-null", "undonated-state")


def _transformer(
    name: str,
    description: str,
    *,
    axes: tuple[str, ...],
    bad: tuple[str, ...],
    unrolled: bool = True,
) -> ArchSpec:
    """One of equal layers over tokens, with a table of positions."""
    return ArchSpec(
        name=name,
        description=description,
        presets=_PRESETS,
        options=(*_TRAINING, _REMAT, _SCANNED_LAYERS, _QUANTIZE),
        axes=axes,
        module=f"hloscope.models.{name}",
        bad=("baked-table", *bad, *(("unrolled-layers",) if unrolled else ())),
    )


def _diffusion_transformer(
    name: str, description: str, axes: tuple[str, ...] = _TENSOR, *, unrolled: bool = True
) -> ArchSpec:
    return _transformer(name, description, axes=axes, bad=_CAPTIONED, unrolled=unrolled)


def _jepa(name: str, description: str) -> ArchSpec:
    return _transformer(name, description, axes=_TENSOR, bad=("float32-head", "undonated-state"))


def _recurrent(name: str, description: str) -> ArchSpec:
    """A language model without attention."""
    return ArchSpec(
        name=name,
        description=description,
        presets=_PRESETS,
        options=(*_WITHOUT_ATTENTION, _REMAT, _SCANNED_LAYERS, _QUANTIZE, _HEAD_CHUNKS),
        axes=_AXES,
        module=f"hloscope.models.{name}",
        bad=("float32-head", "odd-length", "undonated-state", "unrolled-layers"),
    )


_ARCHS = {
    spec.name: spec
    for spec in (
        ArchSpec(
            name="unet",
            description="text-conditioned diffusion UNet on 64x64 images, noise prediction",
            presets=_PRESETS,
            options=_TRAINING,
            axes=_AXES,
            module="hloscope.models.unet",
            bad=_CAPTIONED,
        ),
        ArchSpec(
            name="unet_3d",
            description="text-conditioned diffusion UNet on videos of 8 frames of 64x64",
            presets=_PRESETS,
            options=_TRAINING,
            axes=_AXES,
            module="hloscope.models.unet_3d",
            bad=_CAPTIONED,
        ),
        ArchSpec(
            name="causal_transformer",
            description="decoder-only language model with a float32 head; Llama-shaped at base",
            presets=_PRESETS,
            options=(*_TRAINING, _REMAT, _SCAN_LAYERS, _QUANTIZE, _HEAD_CHUNKS),
            axes=_ALL_AXES,
            module="hloscope.models.causal_transformer",
            bad=("odd-length", "undonated-state"),
        ),
        ArchSpec(
            name="moe_transformer",
            description="the causal_transformer with 8 experts, top 2, in every second layer",
            presets=_PRESETS,
            options=(*_TRAINING, _REMAT, _QUANTIZE, _HEAD_CHUNKS, _EXPERTS),
            axes=(*_ALL_AXES, "expert"),
            module="hloscope.models.moe_transformer",
            bad=("masked-experts", "odd-length", "undonated-state"),
        ),
        ArchSpec(
            name="hierarchical_mmdit",
            description="diffusion transformer over text and 64x64 images in three stages",
            presets=_PRESETS,
            options=(*_TRAINING, _REMAT, _QUANTIZE),
            axes=_AXES,
            module="hloscope.models.hierarchical_mmdit",
            bad=("baked-table", *_CAPTIONED),
        ),
        _diffusion_transformer(
            "simple_dit",
            "diffusion transformer on patches of 64x64 images, adaLN-zero, pooled captions",
            _ALL_AXES,
        ),
        _diffusion_transformer(
            "hybrid_dit",
            "diffusion transformer with attention in one layer of three, and a state in the others",
            # Two groups of three layers: a loop over them would save next to nothing.
            unrolled=False,
        ),
        _diffusion_transformer(
            "video_dit",
            "diffusion transformer on videos of 8 frames, attention within and across frames",
        ),
        _jepa(
            "jepa_encoder",
            "image encoder that predicts its own features of hidden patches, with an EMA target",
        ),
        _jepa(
            "jepa_video_encoder",
            "video encoder that predicts its own features of hidden places, with an EMA target",
        ),
        _recurrent("ssm", "language model of Mamba-2's cells, a recurrence in chunks, next token"),
        _recurrent(
            "gated_deltanet",
            "language model whose state the gated delta rule corrects, in chunks, next token",
        ),
        _diffusion_transformer(
            "simple_mmdit",
            "diffusion transformer over text and patches of 64x64 images together",
            _AXES,
        ),
        _diffusion_transformer(
            "simple_udit",
            "diffusion transformer on patches with long skip connections",
            _ALL_AXES,
        ),
        _diffusion_transformer(
            "uvit", "U-ViT: time, text and patches are all tokens, with long skip connections"
        ),
    )
}
