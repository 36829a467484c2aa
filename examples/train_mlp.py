"""A small training step to look at: `hloscope audit examples/train_mlp.py:step`.

A two-layer perceptron on 28x28 images, trained with AdamW. `step` names the
function and the arguments that it will be called with; only their shapes and
dtypes matter, so no data is needed.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from hloscope.capture.step import Step
from hloscope.ir.signature import Role

Layer = dict[str, jax.Array]
State = dict[str, Any]

BATCH = 256
WIDTHS = (784, 512, 512, 10)

optimizer = optax.adamw(learning_rate=1e-3)


def init(key: jax.Array) -> State:
    """Parameters and optimizer state."""
    params = []
    for fan_in, fan_out in itertools.pairwise(WIDTHS):
        key, layer_key = jax.random.split(key)
        kernel = jax.random.normal(layer_key, (fan_in, fan_out)) * (2 / fan_in) ** 0.5
        params.append({"kernel": kernel, "bias": jnp.zeros(fan_out)})
    return {"params": params, "opt_state": optimizer.init(params), "step": jnp.zeros((), jnp.int32)}


def loss_fn(params: list[Layer], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross-entropy of a batch."""
    hidden = images
    for layer in params[:-1]:
        hidden = jax.nn.relu(hidden @ layer["kernel"] + layer["bias"])
    logits = hidden @ params[-1]["kernel"] + params[-1]["bias"]
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


@functools.partial(jax.jit, donate_argnames="state")
def train_step(state: State, images: jax.Array, labels: jax.Array) -> tuple[State, jax.Array]:
    """One update; `state` is donated, so it is updated in place."""
    loss, grads = jax.value_and_grad(loss_fn)(state["params"], images, labels)
    updates, opt_state = optimizer.update(grads, state["opt_state"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt_state": opt_state, "step": state["step"] + 1}, loss


step = Step(
    fn=train_step,
    args=(
        jax.eval_shape(init, jax.random.key(0)),
        jax.ShapeDtypeStruct((BATCH, WIDTHS[0]), jnp.float32),
        jax.ShapeDtypeStruct((BATCH,), jnp.int32),
    ),
    roles={"state": Role.STATE, "images": Role.BATCH, "labels": Role.BATCH},
)
