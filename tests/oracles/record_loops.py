"""Records training loops on this machine's CPU: ``python record_loops.py FOLDER``.

Each is what its name says and runs the same step six times; one profile a loop.
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

STEPS = 6
SIZE = 384
annotated = jax.profiler.StepTraceAnnotation


@jax.jit
def step(weights, batch):
    for _ in range(4):
        batch = jnp.tanh(batch @ weights)
    return weights - 1e-3 * (batch.T @ batch), jnp.sum(batch)


@jax.jit
def calling(weights, batch):
    seen = jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((), "float32"), jnp.sum(batch))
    return weights + seen, seen


class Loader:
    """Takes longer for a batch than the step does."""

    def __init__(self, batch):
        self.batch, self.left = batch, STEPS

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        time.sleep(0.05)
        return self.batch


def ahead(weights, batch):
    for number in range(STEPS):
        with annotated("train", step_num=number):
            weights, _ = step(weights, batch)
    jax.block_until_ready(weights)


def waiting(weights, batch):
    for number in range(STEPS):
        with annotated("train", step_num=number):
            weights, loss = step(weights, batch)
            float(loss)


def loading(weights, batch):
    for number, loaded in enumerate(Loader(batch)):
        with annotated("train", step_num=number):
            weights, _ = step(weights, loaded)
    jax.block_until_ready(weights)


def sleeping(weights, batch):
    for number in range(STEPS):
        with annotated("train", step_num=number):
            weights, _ = step(weights, batch)
        time.sleep(0.05)
    jax.block_until_ready(weights)


def eager(weights, batch):
    total = jnp.zeros(())
    for number in range(STEPS):
        with annotated("train", step_num=number):
            weights, loss = step(weights, batch)
            total = total + loss * 2.0
    jax.block_until_ready((weights, total))


def placing(weights, batch):
    on_host = np.asarray(batch)
    for number in range(STEPS):
        with annotated("train", step_num=number):
            weights, _ = step(weights, on_host)
    jax.block_until_ready(weights)


def calling_back(weights, batch):
    for number in range(STEPS):
        with annotated("train", step_num=number):
            weights, _ = calling(weights, batch)
    jax.block_until_ready(weights)


LOOPS = (ahead, waiting, loading, sleeping, eager, placing, calling_back)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    weights, batch = jnp.eye(SIZE), jnp.ones((SIZE, SIZE))
    for loop in LOOPS:
        loop(weights, batch)  # compiles
        with jax.profiler.trace(folder / loop.__name__):
            loop(weights, batch)
    # And one without Python's frames.
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(folder / "without_python", profiler_options=options):
        sleeping(weights, batch)
