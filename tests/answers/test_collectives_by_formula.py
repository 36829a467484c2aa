"""What real programs send, against what their shardings must cost, by hand."""

from __future__ import annotations

import pytest

import hloscope
from hloscope.passes.collectives import CollectiveKind
from hloscope.passes.exchanges import Exchanges
from hloscope.passes.reshards import Reshards
from hloscope.passes.step_parts import StepPart
from hloscope.pipeline.session import Session

HEAD = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from hloscope import Step

def shape(*sizes, dtype="float32", **more):
    return jax.ShapeDtypeStruct(sizes, dtype, **more)
"""
DEVICES = 8
# Two weights of 1 MiB each, and a batch that is split over all devices.
WEIGHTS = 2 * 256 * 1024 * 4
STEP = """
def step(devices):
    mesh = Mesh(np.array(devices), ("data",))
    held = NamedSharding(mesh, {spec})
    rows = NamedSharding(mesh, P("data", None))

    def constrain(x):
        return jax.lax.with_sharding_constraint(x, rows)

    def loss(params, x):
        h = constrain(jax.nn.gelu(x @ params["up"]))
        return jnp.mean(constrain(h @ params["down"]) ** 2)

    def f(params, x):
        gradients = jax.grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    params = {{"up": shape(256, 1024, sharding=held), "down": shape(1024, 256, sharding=held)}}
    return Step(
        jax.jit(f, donate_argnums=0, out_shardings=held), (params, shape(512, 256, sharding=rows))
    )
"""
# Eight experts on eight devices; each device has 64 tokens for each of them.
EXPERTS = """
def step(devices):
    mesh = Mesh(np.array(devices), ("expert",))

    def local(w, x):
        sent = jax.lax.all_to_all(x, "expert", 0, 1, tiled=True)
        h = jnp.tanh(jnp.einsum("ecd,edf->ecf", sent, w))
        return jax.lax.all_to_all(h, "expert", 1, 0, tiled=True)

    tokens = P(None, "expert", None)
    dispatch = jax.shard_map(
        local, mesh=mesh, in_specs=(P("expert"), tokens), out_specs=tokens
    )

    def loss(w, x):
        return jnp.mean(dispatch(w, x) ** 2)

    w = shape(8, 128, 128, sharding=NamedSharding(mesh, P("expert")))
    x = shape(8, 512, 128, sharding=NamedSharding(mesh, tokens))
    return Step(jax.grad(loss, (0, 1)), (w, x))
"""
# The length is split in front of the product and its width behind, as in sequence parallelism.
TURNED = """
def step(devices):
    mesh = Mesh(np.array(devices), ("model",))

    def place(*spec):
        return NamedSharding(mesh, P(*spec))

    def f(w, x):
        return jax.lax.with_sharding_constraint(x @ w, place(None, None, "model"))

    w = shape(2048, 8192, dtype="bfloat16", sharding=place(None, "model"))
    return Step(f, (w, shape(2, 4096, 2048, dtype="bfloat16", sharding=place(None, "model"))))
"""


@pytest.fixture
def session_of_step(tmp_path, need_target):
    """Compile the ``step`` of some code; gives a session over it."""

    def make(code: str, target: str, **xla: str) -> Session:
        need_target(target)
        file = tmp_path / "train.py"
        file.write_text(HEAD + code)
        return Session(hloscope.load(f"{file}:step", target=target, xla=xla))

    return make


def sent(rows):
    """Bytes that one device sends in all of them, all runs."""
    return sum(row.collective.wire_bytes * row.collective.times.exact for row in rows)


def test_replicated_weights_send_their_gradients_once_around_and_back(session_of_step):
    rows = session_of_step(STEP.format(spec="P()"), "h100:8").get(Exchanges).rows
    # Ring all-reduce: 2 S (n-1)/n of all gradients together.
    assert sent(rows) == 2 * WEIGHTS * (DEVICES - 1) // DEVICES
    assert {row.collective.kind for row in rows} == {CollectiveKind.ALL_REDUCE}
    assert {row.part for row in rows} == {StepPart.BACKWARD}
    updated = {leaf.path for row in rows for leaf in row.updated}
    assert updated == {"params['up']", "params['down']"}


@pytest.mark.parametrize(("target", "gathered"), [("h100:8", 4), ("v5e:2x4", 2)])
def test_fully_sharded_weights_are_gathered_and_their_gradients_scattered(
    session_of_step, target, gathered
):
    session = session_of_step(STEP.format(spec='P("data", None)'), target)
    rows = session.get(Exchanges).rows
    gathers = [row for row in rows if row.collective.kind is CollectiveKind.ALL_GATHER]
    scatters = [row for row in rows if row.collective.kind is CollectiveKind.REDUCE_SCATTER]
    assert len(gathers) + len(scatters) == len(rows)
    # S (n-1)/n each: the weights forward, kept for the way back, in the type that the chip
    # multiplies in (bytes an element: 4, or 2 on a TPU), and their gradients in float32. In
    # float32 that is what replicated weights send, with an eighth of the state.
    assert sent(gathers) == WEIGHTS * gathered // 4 * (DEVICES - 1) // DEVICES
    assert sent(scatters) == WEIGHTS * (DEVICES - 1) // DEVICES
    moved = {leaf.path for row in gathers for leaf in row.moved}
    assert moved == {leaf.path for row in scatters for leaf in row.updated}
    assert moved == {"params['up']", "params['down']"}
    assert {row.part for row in gathers} == {StepPart.FORWARD}
    assert {row.part for row in scatters} == {StepPart.BACKWARD}
    assert session.get(Reshards).rows == []


@pytest.mark.parametrize("target", ["cpu:8", "h100:8"])
def test_experts_exchange_their_tokens_twice_each_way(session_of_step, target):
    rows = session_of_step(EXPERTS, target).get(Exchanges).rows
    exchanged = [row for row in rows if row.collective.kind is CollectiveKind.ALL_TO_ALL]
    # Out to the experts and back, and the same for the gradients.
    assert [row.part for row in exchanged].count(StepPart.FORWARD) == 2
    assert [row.part for row in exchanged].count(StepPart.BACKWARD) == 2
    assert len(exchanged) == 4
    # S (n-1)/n: a device keeps the eighth of its 8 x 64 x 128 numbers that is its own expert's.
    tokens = 8 * 64 * 128 * 4
    assert [row.collective.wire_bytes for row in exchanged] == [
        tokens * (DEVICES - 1) // DEVICES
    ] * 4
    assert {row.axes for row in exchanged} == {("expert",)}


def test_a_product_that_turns_its_operand_around_sends_it_in_the_loops_runs(session_of_step):
    session = session_of_step(TURNED, "v5e:2x4", xla_jf_spmd_threshold_for_windowed_einsum_mib="0")
    rows = session.get(Exchanges).rows
    assert {row.collective.kind for row in rows} == {CollectiveKind.PERMUTE}
    shard = 2 * 4096 * 2048 * 2 // DEVICES
    assert {row.collective.wire_bytes for row in rows} == {shard}
    # Both ways around at once, two rounds a run: four permutes in each of two runs, and one
    # in front of the loop. It sends no less than the gather in its place, of 7 shards.
    runs = sorted(row.collective.times.exact for row in rows)
    assert runs == [1, 2, 2, 2, 2]
    assert sent(rows) == 9 * shard
    assert {row.axes for row in rows} == {("model",)}
    about = [{leaf.path for leaf in (*row.moved, *row.sources)} for row in rows]
    assert about == [{"x"}] * 5
    assert session.get(Reshards).rows == []
