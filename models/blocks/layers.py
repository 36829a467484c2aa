"""Layers one after another: stacked in a loop or spelled out, and what each keeps.

``remat`` says what a layer keeps for the backward pass. ``none`` keeps what
differentiation needs; ``full`` keeps only the layer's inputs and computes the
rest again; ``dots`` also keeps the results of products, and
``dots_with_no_batch_dims`` of those with weights alone. ``names:A+B`` keeps the
values that the layers put under these names with ``checkpoint_name``, such as
``names:attention_out+mlp_out``; ``offload:A+B`` keeps them in the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from hloscope.models.sharding import pin

__all__ = ["LongSkips", "layer_function", "make_layers", "run_layers"]

Layer = TypeVar("Layer", bound=nnx.Module)

_POLICIES: dict[str, Callable[..., Any] | None] = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_saveable,
    "dots_with_no_batch_dims": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


def _policy(remat: str) -> Callable[..., Any] | None:
    kind, _, names = remat.partition(":")
    policy: Callable[..., Any] | None
    if kind == "names":
        policy = jax.checkpoint_policies.save_only_these_names(*names.split("+"))
    elif kind == "offload":
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=names.split("+"),
            offload_src="device",
            offload_dst="pinned_host",
        )
    else:
        policy = _POLICIES[kind]
    return policy


def layer_function(layer: nnx.Module, remat: str) -> tuple[Callable[..., Any], Any]:
    """A layer as a function of its parameters and inputs, and its parameters.

    Args:
        layer: Its call is what runs; it holds parameters only.
        remat: What it keeps for the backward pass.
    """
    graphdef, params = nnx.split(layer)

    def run(params: Any, *inputs: Any) -> Any:
        called: Any = nnx.merge(graphdef, params)
        return called(*inputs)

    if remat == "none":
        return run, params
    return jax.checkpoint(run, policy=_policy(remat)), params


def make_layers(
    create: Callable[[nnx.Rngs], Layer], number: int, *, scan: bool, rngs: nnx.Rngs
) -> Layer | nnx.List[Layer]:
    """As many layers as asked for, each from parameters of its own.

    Args:
        create: Makes one.
        number: How many, at least 1.
        scan: Whether they are one module of stacked parameters, or a list.
        rngs: Source of the initial parameters.
    """
    if not scan:
        return nnx.List([create(rngs) for _ in range(number)])

    @nnx.split_rngs(splits=number)
    @nnx.vmap
    def stack(rngs: nnx.Rngs) -> Layer:
        return create(rngs)

    stacked: Layer = stack(rngs)
    return stacked


def run_layers(
    layers: nnx.Module | Sequence[nnx.Module],
    hidden: Any,
    *inputs: jax.Array,
    remat: str,
    scope: str = "layers",
    skips: Any = None,
    keep: bool = False,
) -> tuple[Any, Any]:
    """Run ``hidden = layer(*hidden, *inputs)`` layer by layer, and pin what each puts out.

    Args:
        layers: As ``make_layers`` gives them.
        hidden: What goes from layer to layer: one array, or a tuple of them.
        inputs: What every layer takes besides.
        remat: What each keeps for the backward pass.
        scope: Name of the layers; those of a list are ``layer_0`` and so on.
        skips: What each layer takes between ``hidden`` and ``inputs``, as another
            run put it out. The layer of the last runs first.
        keep: Whether to return what each layer put out.

    Returns:
        What the last layer put out, and what each did, where it was to be kept:
        stacked, or a list.
    """

    def outcome(run: Callable[..., Any], params: Any, hidden: Any, skip: Any) -> Any:
        taken = hidden if isinstance(hidden, tuple) else (hidden,)
        return jax.tree.map(pin, run(params, *taken, *skip, *inputs))

    backwards = skips is not None
    if not isinstance(layers, nnx.Module) or isinstance(layers, nnx.List):
        put_out: list[Any] = []
        order = list(enumerate(layers))
        for index, layer in reversed(order) if backwards else order:
            run, params = layer_function(layer, remat)
            with jax.named_scope(f"{scope.removesuffix('s')}_{index}"):
                skip = (skips[index],) if backwards else ()
                hidden = outcome(run, params, hidden, skip)
            put_out.append(hidden)
        return hidden, put_out if keep else None
    run, params = layer_function(layers, remat)
    with jax.named_scope(scope):

        def one(hidden: Any, layer: tuple[Any, Any]) -> tuple[Any, Any]:
            hidden = outcome(run, layer[0], hidden, layer[1])
            return hidden, hidden if keep else None

        each = (params, (skips,) if backwards else ())
        hidden, stacked = jax.lax.scan(one, hidden, each, reverse=backwards)
    return hidden, stacked


class _Joined(nnx.Module):
    """A layer that takes up what another put out, beside its own tokens."""

    def __init__(self, layer: nnx.Module, width: int, *, dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        self.join = nnx.Linear(2 * width, width, dtype=dtype, rngs=rngs)
        self.layer = layer

    def __call__(self, tokens: jax.Array, skip: jax.Array, *inputs: jax.Array) -> jax.Array:
        """Map ``[batch, tokens, width]``, twice, to the same shape."""
        with jax.named_scope("join"):
            tokens = self.join(jnp.concatenate((tokens, skip), axis=-1))
        layer: Any = self.layer
        mixed: jax.Array = layer(tokens, *inputs)
        return mixed


class LongSkips(nnx.Module):
    """Layers of which the first gives what it puts out to the last, too, and so on inwards.

    The long skip connections of U-ViT (Bao et al., arXiv:2209.12152): tokens and
    skip are joined channel by channel and brought back to the width.

    Args:
        create: Makes a layer.
        number: Of layers, odd; one stands in the middle.
        width: Channels of a token.
        scan: Whether each half is one loop.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        create: Callable[[nnx.Rngs], nnx.Module],
        number: int,
        width: int,
        *,
        scan: bool,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        def joined(rngs: nnx.Rngs) -> _Joined:
            return _Joined(create(rngs), width, dtype=dtype, rngs=rngs)

        self.first = make_layers(create, number // 2, scan=scan, rngs=rngs)
        self.middle = create(rngs)
        # By the layer whose output they take up: the last to run is the first.
        self.last = make_layers(joined, number // 2, scan=scan, rngs=rngs)

    def __call__(self, tokens: jax.Array, *inputs: jax.Array, remat: str) -> jax.Array:
        """Map ``[batch, tokens, width]`` to the same shape; see ``run_layers``."""
        run = partial(run_layers, remat=remat)
        tokens, kept = run(self.first, tokens, *inputs, scope="first_layers", keep=True)
        tokens, _ = run([self.middle], tokens, *inputs, scope="middle")
        tokens, _ = run(self.last, tokens, *inputs, scope="last_layers", skips=kept)
        return tokens
