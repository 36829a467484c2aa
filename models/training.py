"""What every model's training step is made of: state, loss gradient, AdamW update.

The state is a plain pytree, so that its paths read as the model is written:
``state['params']['down'][0]...``, ``state['opt_state'][0].mu...`` and
``state['step']``. A step keeps the shape, dtype and sharding of every leaf of
it, which is what lets donation alias all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import AbstractMesh, Mesh

from hloscope.capture.step import Step
from hloscope.ir.signature import Role
from hloscope.models.sharding import (
    Constrain,
    batch_constraint,
    lay_mesh,
    place_batch,
    place_replicated,
    place_state,
    unconstrained,
)

__all__ = ["Parameters", "State", "Training", "adamw", "create_state", "parameters_of", "update"]

Parameters = dict[Any, Any]
"""Nested plain dicts of arrays, as ``nnx.to_pure_dict`` gives them."""

State = dict[str, Any]
"""``params``, ``opt_state`` and ``step``."""


@dataclass(frozen=True)
class Training:
    """A model's training: its step, and what to call it with.

    Attributes:
        name: How reports call the step.
        make_step: From a sharding constraint on activations to the step,
            ``step(state, *inputs) -> (state, metrics)``.
        init: From a key to the initial state.
        example: From a key to one example of the step's inputs after the state.
        roles: Role of each of those inputs, in order; only a batch is split
            over devices.
    """

    name: str
    make_step: Callable[[Constrain], Callable[..., tuple[State, dict[str, jax.Array]]]]
    init: Callable[[jax.Array], State]
    example: Callable[[jax.Array], tuple[Any, ...]]
    roles: tuple[Role, ...]

    def abstract(self) -> tuple[State, tuple[Any, ...]]:
        """State and inputs as trees of ``jax.ShapeDtypeStruct``; allocates nothing."""
        key = jax.eval_shape(lambda: jax.random.key(0))
        state: State = jax.eval_shape(self.init, key)
        inputs: tuple[Any, ...] = jax.eval_shape(self.example, key)
        return state, inputs

    def build(
        self,
        mesh: Mapping[str, int] | Mesh | AbstractMesh | None = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> Step:
        """Describe the step for capture, sharded over ``mesh`` where there is one.

        Args:
            mesh: Axis name to size, or a JAX mesh.
            devices: What sizes are laid over; JAX's default devices if ``None``.

        Raises:
            UsageError: When the mesh fits neither the devices nor the batch.
        """
        state, inputs = self.abstract()
        roles: dict[int | str, Role] = dict(enumerate((Role.STATE, *self.roles)))
        if mesh is None or mesh == {}:
            return Step(
                fn=self.make_step(unconstrained),
                args=(state, *inputs),
                donate=(0,),
                roles=roles,
                name=self.name,
            )
        laid = lay_mesh(mesh, devices)
        state_places = place_state(state, laid)
        input_places = tuple(
            place_batch(value, laid) if role is Role.BATCH else place_replicated(value, laid)
            for role, value in zip(self.roles, inputs, strict=True)
        )
        return Step(
            fn=self.make_step(batch_constraint(laid)),
            args=(
                _with_shardings(state, state_places),
                *(_with_shardings(*pair) for pair in zip(inputs, input_places, strict=True)),
            ),
            donate=(0,),
            roles=roles,
            out_shardings=(state_places, place_replicated(0, laid)),
            name=self.name,
        )


def adamw(learning_rate: float) -> optax.GradientTransformation:
    """AdamW that decays kernels and embeddings by 0.01, and no scale or bias."""

    def decayed(params: Parameters) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: path[-1].key in ("kernel", "embedding"), params
        )

    return optax.adamw(learning_rate, weight_decay=0.01, mask=decayed)


def parameters_of(model: nnx.Module) -> tuple[Any, Parameters]:
    """Split a model into its graph definition and its parameters as plain dicts.

    Raises:
        ValueError: When the model holds variables other than parameters.
    """
    graphdef, params = nnx.split(model, nnx.Param)
    return graphdef, nnx.to_pure_dict(params)


def create_state(
    create: Callable[[nnx.Rngs], nnx.Module], optimizer: optax.GradientTransformation
) -> Callable[[jax.Array], State]:
    """From the model's constructor to a function from a key to the initial state."""

    def init(key: jax.Array) -> State:
        _, params = parameters_of(create(nnx.Rngs(params=key)))
        return {
            "params": params,
            "opt_state": optimizer.init(params),
            "step": jnp.zeros((), jnp.int32),
        }

    return init


def update(
    state: State,
    loss: Callable[[Parameters], jax.Array],
    optimizer: optax.GradientTransformation,
) -> tuple[State, dict[str, jax.Array]]:
    """Take one optimizer step down the gradient of ``loss`` at ``state['params']``.

    Returns:
        The next state, and ``loss`` and ``grad_norm`` (float32 scalars).
    """
    value, gradients = jax.value_and_grad(loss)(state["params"])
    with jax.named_scope("optimizer"):
        updates, opt_state = optimizer.update(gradients, state["opt_state"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        squares = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradients))
    next_state = {"params": params, "opt_state": opt_state, "step": state["step"] + 1}
    return next_state, {"loss": value, "grad_norm": jnp.sqrt(squares)}


def _with_shardings(tree: Any, shardings: Any) -> Any:
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        tree,
        shardings,
    )
