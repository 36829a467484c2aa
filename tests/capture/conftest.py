"""Steps to capture, and the one capture that most tests look at."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from hloscope.capture import Artifact, CaptureRequest, capture, parse_source

MLP = """
import jax
import jax.numpy as jnp
import numpy as np

TABLE = np.linspace(0.0, 1.0, 48, dtype=np.float32).reshape(6, 8)


def train(state, batch, key, lr, unused):
    def loss(w):
        noise = jax.random.normal(key, (4, 8))
        return jnp.mean((batch["x"] @ w + batch["x"][:, :6] @ TABLE + noise - batch["y"]) ** 2)

    value, grad = jax.value_and_grad(loss)(state["w"])
    return {"w": state["w"] - lr * grad, "count": state["count"] + 1}, value


ARGS = (
    {"w": jax.ShapeDtypeStruct((8, 8), jnp.float32), "count": jnp.zeros((), jnp.int32)},
    {"x": np.zeros((4, 8), np.float32), "y": jnp.zeros((4, 8))},
    jax.random.key(0),
    0.1,
    jnp.zeros((3,)),
)
"""

MLP_STEP = (
    MLP
    + """
from hloscope.capture import Step

step = Step(train, ARGS, donate=(0,))
pair = (train, ARGS)


def made():
    return step


def on_devices(devices):
    return Step(train, ARGS, name=f"on {len(devices)}")
"""
)

WriteFile = Callable[[str, str], Path]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Write a Python file into the test's folder."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that only this test sees."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HLOSCOPE_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def mlp_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps") / "train_mlp.py"
    path.write_text(MLP_STEP)
    return path


@pytest.fixture(scope="session")
def mlp_on_cpu(mlp_file: Path) -> Artifact:
    """The MLP's training step, captured for the CPU once."""
    return capture(CaptureRequest(parse_source(f"{mlp_file}:step"), use_cache=False))


@pytest.fixture
def no_such_process() -> Callable[[int], bool]:
    """Whether a process is gone (or only waits to be reaped by its parent)."""

    def gone(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/stat")
        try:
            return status.read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return not Path("/proc").exists()

    return gone
