"""What every model's training step is made of: state, loss gradient, update.

The state is a plain pytree, so that its paths read as the model is written:
``state['params']['down'][0]...``, ``state['opt_state'][0].mu...`` and
``state['step']``. A step keeps the shape, dtype and sharding of every leaf of
it, which is what lets donation alias all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import AbstractMesh, Mesh
from jax.typing import DTypeLike

from hloscope.capture.step import Step
from hloscope.errors import UsageError
from hloscope.ir.signature import Role
from hloscope.models.blocks.attention import AttentionRoute
from hloscope.models.optimizers import make_optimizer
from hloscope.models.quantization import quantize
from hloscope.models.sharding import (
    lay_mesh,
    on_mesh,
    place_batch,
    place_replicated,
    place_state,
    refuse_uneven,
)

__all__ = [
    "Learner",
    "Parameters",
    "State",
    "Training",
    "TrainingConfig",
    "configured",
    "parameters_of",
]

Parameters = dict[Any, Any]
"""Nested plain dicts of arrays, as ``nnx.to_pure_dict`` gives them."""

State = dict[str, Any]
"""``params``, ``opt_state`` and ``step``."""

# How an option's text becomes the field of its name; a word stays a word.
_READ: Mapping[str, Callable[[str], Any]] = {
    "batch": int,
    "dtype": jnp.dtype,
    "head_chunks": int,
    "state_dtype": jnp.dtype,
    "scan_layers": lambda value: value == "true",
}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """What every model's configuration holds beside its own shapes.

    Attributes:
        batch: Samples in a step.
        dtype: Of activations and products.
        attention: See ``hloscope.models.blocks.attention.attend``.
        optimizer: See ``hloscope.models.optimizers``.
        state_dtype: Of the optimizer's moments.
        learning_rate: Of the optimizer.
        quantize: See ``hloscope.models.quantization``.
        bad: Names of the antipatterns to build in.
    """

    batch: int
    dtype: DTypeLike = jnp.bfloat16
    attention: AttentionRoute = "xla"
    optimizer: str = "adamw"
    state_dtype: DTypeLike = jnp.float32
    learning_rate: float = 2e-4
    quantize: str = "none"
    bad: frozenset[str] = frozenset()

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Mesh axis to how many there are of what it splits, by its name in words."""
        return {}

    @property
    def whole(self) -> Mapping[str, int]:
        """The one sequence that a kernel of attention does not let ``sequence`` split."""
        if self.attention not in ("cudnn", "flash"):
            return {}
        return {f"sequence, which attention={self.attention} takes whole": 1}


Config = TypeVar("Config", bound=TrainingConfig)


@dataclass(frozen=True)
class Training:
    """A model's training: its step, and what to call it with.

    Attributes:
        name: How reports call the step.
        step: ``step(state, *inputs) -> (state, metrics)``.
        init: From a key to the initial state.
        example: From a key to one example of the step's inputs after the state.
        roles: Role of each of those inputs, in order; only a batch is split
            over devices.
        counts: See ``TrainingConfig``.
        donates: Whether the step gives its state's buffers away.
    """

    name: str
    step: Callable[..., tuple[State, dict[str, jax.Array]]]
    init: Callable[[jax.Array], State]
    example: Callable[[jax.Array], tuple[Any, ...]]
    roles: tuple[Role, ...]
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    donates: bool = True

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
            UsageError: When the mesh does not fit the devices, the batch or the model.
        """
        state, inputs = self.abstract()
        roles: dict[int | str, Role] = dict(enumerate((Role.STATE, *self.roles)))
        if mesh is None or mesh == {}:
            return Step(
                fn=self.step,
                args=(state, *inputs),
                donate=(0,) if self.donates else (),
                roles=roles,
                name=self.name,
            )
        laid = lay_mesh(mesh, devices)
        refuse_uneven(self.counts, laid)
        state_places = place_state(state, laid)
        input_places = tuple(
            place_batch(value, laid) if role is Role.BATCH else place_replicated(value, laid)
            for role, value in zip(self.roles, inputs, strict=True)
        )
        return Step(
            fn=on_mesh(self.step, laid),
            args=(
                _with_shardings(state, state_places),
                *(_with_shardings(*pair) for pair in zip(inputs, input_places, strict=True)),
            ),
            donate=(0,) if self.donates else (),
            roles=roles,
            out_shardings=(state_places, place_replicated(0, laid)),
            name=self.name,
        )


def configured(config: Config, settings: Mapping[str, str], bad: Collection[str] = ()) -> Config:
    """A preset with the fields that options of the same names set.

    Args:
        config: A preset.
        settings: Options as the registry checked them.
        bad: Antipatterns to build in.

    Raises:
        UsageError: When two options do not go together.
    """
    fields = {name: _READ.get(name, str)(value) for name, value in settings.items()}
    chosen = replace(config, **fields, bad=frozenset(bad))
    if chosen.attention == "cudnn" and jnp.dtype(chosen.dtype).itemsize > 2:
        raise UsageError(
            f"cuDNN's attention takes 16 bits, and dtype={jnp.dtype(chosen.dtype)} was asked for",
            place="--set attention=cudnn",
            hint="Leave dtype=bfloat16, or choose attention=xla.",
        )
    return chosen


def parameters_of(model: nnx.Module) -> tuple[Any, Parameters]:
    """Split a model into its graph definition and its parameters as plain dicts.

    Raises:
        ValueError: When the model holds variables other than parameters.
    """
    graphdef, params = nnx.split(model, nnx.Param)
    return graphdef, nnx.to_pure_dict(params)


class Learner:
    """A model and its optimizer, as functions of the state.

    Args:
        create: The model's constructor; only its shapes are read here.
        config: Names the optimizer and what multiplies in eight bits.
    """

    def __init__(self, create: Callable[[nnx.Rngs], nnx.Module], config: TrainingConfig) -> None:
        self._create = create
        self._optimizer = make_optimizer(config.optimizer, config.learning_rate, config.state_dtype)
        self._graphdef, _ = parameters_of(
            nnx.eval_shape(lambda: quantize(create(nnx.Rngs(0)), config.quantize))
        )

    def init(self, key: jax.Array) -> State:
        """The state before the first step, from a random key."""
        _, params = parameters_of(self._create(nnx.Rngs(params=key)))
        return {
            "params": params,
            "opt_state": self._optimizer.init(params),
            "step": jnp.zeros((), jnp.int32),
        }

    def update(
        self, state: State, loss: Callable[[Any], jax.Array]
    ) -> tuple[State, dict[str, jax.Array]]:
        """Take one optimizer step down the gradient of ``loss`` at the state's parameters.

        Args:
            state: As ``init`` gives it.
            loss: From the model with those parameters to a float32 scalar.

        Returns:
            The next state, and ``loss`` and ``grad_norm`` (float32 scalars).
        """

        def of_parameters(params: Parameters) -> jax.Array:
            return loss(nnx.merge(self._graphdef, params))

        value, gradients = jax.value_and_grad(of_parameters)(state["params"])
        with jax.named_scope("optimizer"):
            updates, opt_state = self._optimizer.update(
                gradients, state["opt_state"], state["params"]
            )
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
