"""The architectures that hloscope can build, by name, without importing JAX.

Each entry says what can be asked of an architecture: its presets, its options,
its bad switches and the mesh axes that it can be sharded over.
"""

from __future__ import annotations

from types import MappingProxyType

from hloscope.chips import ChipKind
from hloscope.errors import UsageError
from hloscope.models.arch_spec import ArchSpec, Option, nearest

__all__ = ["ArchSpec", "get", "names"]


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
        hint=nearest(name, names(), "architectures"),
    )


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
    without: str = "",
) -> ArchSpec:
    """One of equal layers over tokens, with a table of positions."""
    return ArchSpec(
        name=name,
        description=description,
        presets=_PRESETS,
        options=(*_TRAINING, _REMAT, _SCANNED_LAYERS, _QUANTIZE),
        axes=axes,
        module=f"hloscope.models.{name}",
        bad=tuple(one for one in ("baked-table", *bad, "unrolled-layers") if one != without),
    )


def _diffusion_transformer(
    name: str, description: str, axes: tuple[str, ...] = _TENSOR, *, without: str = ""
) -> ArchSpec:
    return _transformer(name, description, axes=axes, bad=_CAPTIONED, without=without)


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
            # Beside eight frames neither the captions nor their encoder are worth a finding.
            bad=("undonated-state",),
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
            without="unrolled-layers",
        ),
        _diffusion_transformer(
            "video_dit",
            "diffusion transformer on videos of 8 frames, attention within and across frames",
            # The captions of four videos are less than the audit's limit for constants.
            without="closed-over",
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
