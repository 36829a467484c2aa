"""The command line over a step of the user's own, compiled for the CPU in a worker."""

import json
import subprocess
import sys

import pytest

STEP = """
import jax
import jax.numpy as jnp


def update(state, batch):
    error = batch @ state["w"]
    return {"w": state["w"] - error.sum() * 1e-3, "n": state["n"] + 1}, error.mean()


def arguments():
    leaf = jax.ShapeDtypeStruct
    state = {"w": leaf((32, 16), jnp.float32), "n": leaf((), jnp.int32)}
    return state, leaf((8, 32), jnp.float32)


donating = jax.jit(update, donate_argnums=0), arguments()
keeping = jax.jit(update), arguments()


def raising():
    raise RuntimeError("no step today")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "train.py").write_text(STEP)

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "hloscope", *arguments],
            cwd=folder,
            env={**_environment(), "HLOSCOPE_CACHE_DIR": str(folder / "cache")},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return call


def _environment():
    import os

    kept = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT", "COVERAGE_PROCESS_START")
    return {name: os.environ[name] for name in kept if name in os.environ}


def test_a_users_step_is_audited(run):
    done = run("audit", "train.py:donating", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["subject"] == "train.py:donating"
    assert len(report["verdicts"]) == 9
    assert report["failures"] == []
    assert report["header"]["devices"]["value"] == 1
    assert {"trace", "lower", "compile"} <= set(report["header"])


def test_donation_holds_where_the_state_is_donated_and_not_where_it_is_kept(run):
    assert run("check", "donation", "train.py:donating").returncode == 0
    kept = run("check", "donation", "train.py:keeping")
    assert kept.returncode == 1
    assert "state['w']" in kept.stdout
    assert "donate" in kept.stdout


def test_flops_agree_with_the_arithmetic_and_stand_beside_xlas(run):
    report = json.loads(run("flops", "train.py:donating", "--json").stdout)
    (_, ours, _), (_, theirs, ratio), (_, jaxpr, _) = report["tables"][0]["rows"]
    assert ours["value"] == 2 * 8 * 32 * 16
    assert jaxpr["value"] == ours["value"]
    assert theirs["value"] > 0
    assert ratio["value"] == pytest.approx(ours["value"] / theirs["value"])
    tables = {table["name"]: table for table in report["tables"]}
    assert {"from_xla", "from_jaxpr", "instructions", "jaxpr", "by.scope"} <= set(tables)
    for name in ("from_xla", "from_jaxpr"):
        *steps, whole = (row[0]["value"] for row in tables[name]["rows"])
        assert sum(steps) == whole == ours["value"]


def test_a_users_own_traceback_is_kept_and_ours_left_out(run):
    done = run("audit", "train.py:raising")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "RuntimeError: no step today" in done.stderr
    assert "hloscope/" not in done.stderr
