"""Where arrays live on a mesh of data, fsdp, tensor, expert and sequence axes.

A leaf of the state is split over ``tensor`` or ``expert`` as ``SPLITS`` says of its
path, and over ``fsdp`` in another dimension. The batch is split over ``data``,
``fsdp`` and ``expert`` together, and along each sample over ``sequence``, over which
the state is whole. A leaf's place depends on its path and shape alone, so a state
that comes out of a step has the place of the one that went in, and donation can
alias every leaf.

``tensor`` splits a layer as Megatron does (Shoeybi et al., arXiv:1909.08053): the
heads of attention and the channels inside an MLP, so that each branch of a layer
sums its tokens over the axis once forward and once backward. ``sequence`` splits
everything but attention by tokens; attention gathers the keys and values of all
(as Llama 3 does, arXiv:2407.21783, section 3.3.2).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from hloscope.errors import UsageError

__all__ = [
    "BATCH_AXES",
    "SPLITS",
    "Layout",
    "batch_spec",
    "gather_tokens",
    "gather_width",
    "lay_mesh",
    "on_mesh",
    "parameter_spec",
    "pin",
    "place_batch",
    "place_replicated",
    "place_state",
    "refuse_uneven",
]

BATCH_AXES = ("data", "fsdp", "expert")

# How a leaf's path ends, in regular expressions; the axis that splits it; and the
# dimension, from the last: layers and experts may be stacked in front.
_RULES = (
    (r"experts\.(gate|up|down)\.kernel", "expert", -3),
    (r"(query|key|value)\.kernel", "tensor", -1),
    (r"attention(\.branch)?\.out\.kernel", "tensor", -2),
    (r"(gate|up)\.(kernel|bias)", "tensor", -1),
    (r"down\.kernel", "tensor", -2),
    (r"(embed|head)\.embedding", "tensor", -2),
)
SPLITS = tuple((re.compile(rf"\.{end}$"), axis, place) for end, axis, place in _RULES)
"""What of the state an axis of its own splits; the rest is whole over it."""

# 16 KiB of float32. Splitting less saves no memory worth a collective's latency.
SMALLEST_SPLIT = 4096

Returned = TypeVar("Returned")


class Layout(Enum):
    """The axes that split each dimension of an array in the step, from the first on.

    Dimensions behind them are whole.
    """

    TOKENS = (BATCH_AXES, ("sequence",))
    """Between a layer's parts: ``[batch, tokens, width]``, or rows of an image."""

    FEATURES = (BATCH_AXES, ("sequence",), ("tensor",))
    """Inside a part: ``[batch, tokens, heads or words, ...]``."""

    KEYS = (BATCH_AXES, (), ("tensor",))
    """What every query reads: ``[batch, tokens, heads, head width]``."""

    CHUNKS = ((), BATCH_AXES, ("sequence",))
    """Parts of each sequence one after another: ``[parts, batch, tokens of a part, ...]``."""

    VOCABULARY = (("tensor",),)
    """A table of words as it is read: ``[words, width]``."""


def lay_mesh(
    mesh: Mapping[str, int] | Mesh | AbstractMesh, devices: Sequence[jax.Device] | None
) -> Mesh | AbstractMesh:
    """Lay axis sizes over devices; a JAX mesh is returned as it is.

    Args:
        mesh: Axis name to size, in order, or a mesh.
        devices: What to lay it over; JAX's default devices where ``None``.

    Raises:
        UsageError: When the sizes' product is not the number of devices.
    """
    if not isinstance(mesh, Mapping):
        return mesh
    devices = jax.devices() if devices is None else devices
    sizes = tuple(mesh.values())
    needed = math.prod(sizes)
    if min(sizes, default=0) < 1 or needed != len(devices):
        asked = ",".join(f"{axis}={size}" for axis, size in mesh.items())
        product = " x ".join(str(size) for size in sizes)
        raise UsageError(
            f"{product} = {needed} devices asked for, the target has {len(devices)}",
            place=f"--mesh {asked}",
            hint=f"Choose axis sizes whose product is {len(devices)}, or a target of that size.",
        )
    return jax.make_mesh(
        sizes, tuple(mesh), axis_types=(AxisType.Auto,) * len(sizes), devices=devices
    )


def parameter_spec(
    shape: tuple[int, ...], mesh: Mesh | AbstractMesh, path: str = ""
) -> PartitionSpec:
    """Split a leaf as ``SPLITS`` says, and over ``fsdp`` the largest other dimension.

    Of equal dimensions the last is split. ``fsdp`` leaves small leaves whole, and no
    axis splits a dimension that it does not divide.

    Args:
        shape: The leaf's.
        mesh: Its axes.
        path: The leaf's keys, with a dot between them.
    """
    places: dict[int, str] = {}
    for ending, axis, place in SPLITS:
        size = mesh.shape.get(axis, 1)
        if size > 1 and ending.search(path) and shape[place] % size == 0:
            places[len(shape) + place] = axis
    size = mesh.shape.get("fsdp", 1)
    divisible = [n for n, extent in enumerate(shape) if extent % size == 0 and n not in places]
    if size > 1 and math.prod(shape) >= SMALLEST_SPLIT and divisible:
        places[max(divisible, key=lambda axis: (shape[axis], axis))] = "fsdp"
    if not places:
        return PartitionSpec()
    return PartitionSpec(*(places.get(axis) for axis in range(len(shape))))


def batch_spec(shape: tuple[int, ...], mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """Split samples over the batch axes, and what comes behind them over ``sequence``."""
    return _spec(shape, Layout.TOKENS, mesh)


def _spec(shape: tuple[int, ...], layout: Layout, mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """The layout on that mesh; axes split no dimension that they do not divide."""
    parts: list[tuple[str, ...]] = []
    for extent, wanted in zip(shape, layout.value, strict=False):
        axes = tuple(axis for axis in wanted if axis in mesh.shape)
        fits = extent % math.prod(mesh.shape[axis] for axis in axes) == 0
        parts.append(axes if fits else ())
    while parts and not parts[-1]:
        parts.pop()
    return PartitionSpec(*(axes or None for axes in parts))


def place_state(state: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A tree like ``state`` of the sharding of each leaf."""

    def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        keys = jax.tree_util.keystr(path, simple=True, separator=".")
        return NamedSharding(mesh, parameter_spec(leaf.shape, mesh, keys))

    return jax.tree_util.tree_map_with_path(place, state)


def place_batch(batch: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A tree like ``batch`` of shardings; see ``batch_spec``.

    Raises:
        UsageError: When the devices do not divide the batch.
    """
    parts = math.prod(mesh.shape.get(axis, 1) for axis in BATCH_AXES)
    for leaf in jax.tree.leaves(batch):
        if leaf.shape[0] % parts:
            raise UsageError(
                f"a batch of {leaf.shape[0]} cannot be split over {parts} devices",
                place="--mesh",
                hint=f"Set a batch that {parts} divides: --set batch={parts}.",
            )
    return jax.tree.map(lambda leaf: NamedSharding(mesh, batch_spec(leaf.shape, mesh)), batch)


def refuse_uneven(counts: Mapping[str, Mapping[str, int]], mesh: Mesh | AbstractMesh) -> None:
    """See whether each axis divides what it splits.

    Args:
        counts: Axis to how many there are of what it splits, by its name in words.
        mesh: Its axes.

    Raises:
        UsageError: When an axis leaves a rest. An axis that split only a part of a
            layer would gather it again at the next.
    """
    for axis, split in counts.items():
        size = mesh.shape.get(axis, 1)
        uneven = [f"{count} {what}" for what, count in split.items() if count % size]
        if uneven:
            common = math.gcd(*split.values())
            sizes = [str(n) for n in range(1, common + 1) if common % n == 0]
            raise UsageError(
                f"{axis}={size} does not divide {' and '.join(uneven)}",
                place="--mesh",
                hint=f"Sizes of {axis} that fit the model are: {', '.join(sizes)}.",
            )


def place_replicated(tree: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A tree like ``tree`` of shardings that keep every leaf whole on each device."""
    return jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec()), tree)


def on_mesh(step: Callable[..., Returned], mesh: Mesh | AbstractMesh) -> Callable[..., Returned]:
    """The step with its arrays pinned on a mesh; see ``pin``."""
    axes = mesh if isinstance(mesh, AbstractMesh) else mesh.abstract_mesh

    @functools.wraps(step)
    def pinned(*args: Any) -> Returned:
        with jax.sharding.use_abstract_mesh(axes):
            return step(*args)

    return pinned


def pin(array: jax.Array, layout: Layout = Layout.TOKENS) -> jax.Array:
    """Keep an array in its layout on the mesh that the step is traced on, if any.

    Without the pin the partitioner may follow the parameters instead, and
    split activations by channel over the axis that should only shard storage.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return array
    pinned: jax.Array = jax.lax.with_sharding_constraint(array, _spec(array.shape, layout, mesh))
    return pinned


def gather_tokens(features: jax.Array) -> jax.Array:
    """Features of all tokens on each device, where ``sequence`` splits them.

    Their gradient is summed and split again at once. A pin alone would keep it
    whole, as it keeps the array itself, until its next use.

    Args:
        features: In the layout ``FEATURES``, as what it returns but for the tokens.
    """
    if "sequence" not in jax.sharding.get_abstract_mesh().shape:
        return features
    gathered: jax.Array = _gathered(features)
    return gathered


def gather_width(table: jax.Array) -> jax.Array:
    """A table ``[words, width]`` to look words up in, where ``tensor`` splits the words.

    Split in both dimensions, its rows would be looked up in parts and exchanged. One
    whose words alone are split is left to the partitioner, which may send rows or tokens.
    """
    if "tensor" not in jax.sharding.get_abstract_mesh().shape:
        return table
    return pin(table, Layout.VOCABULARY)


@jax.custom_vjp
def _gathered(features: jax.Array) -> jax.Array:
    return pin(features, Layout.KEYS)


def _gathered_forward(features: jax.Array) -> tuple[jax.Array, None]:
    return pin(features, Layout.KEYS), None


def _gathered_backward(_: None, gradient: jax.Array) -> tuple[jax.Array]:
    return (pin(gradient, Layout.FEATURES),)


_gathered.defvjp(_gathered_forward, _gathered_backward)
