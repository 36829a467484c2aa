"""Residuals that wait on the host, held against what policies ask for and sizes."""

from __future__ import annotations

import pytest

from hloscope.ir.named_points import NamedPoints, RematPolicy
from hloscope.passes.host_offload import HostOffload, OffloadOutcome
from hloscope.pipeline.session import Session

LAYERS, TOKENS, WIDTH, HIDDEN = 4, 256, 128, 512

CODE = f"""
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from hloscope import Step

def layer(h, p):
    with jax.named_scope("mlp"):
        up = checkpoint_name(h @ p["up"], "up")
        down = checkpoint_name(jnp.tanh(up) @ p["down"], "down")
    return jnp.tanh(h + down), None

def offload(*names):
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=list(names),
        offload_src="device", offload_dst="pinned_host",
    )
    return jax.checkpoint(layer, policy=policy)

def scanned(run):
    def loss(params, x):
        h, _ = jax.lax.scan(run, x, params)
        return (h ** 2).sum()
    return loss

def unrolled(params, x):
    for index in range({LAYERS}):
        x, _ = offload("up")(x, jax.tree.map(lambda w: w[index], params))
    return (x ** 2).sum()

def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16)

arguments = (
    {{"up": shape({LAYERS}, {WIDTH}, {HIDDEN}), "down": shape({LAYERS}, {HIDDEN}, {WIDTH})}},
    shape({TOKENS}, {WIDTH}),
)
names = Step(jax.grad(scanned(offload("up"))), arguments)
unrolled = Step(jax.grad(unrolled), arguments)
"""

UP = LAYERS * TOKENS * HIDDEN * 2


@pytest.fixture(scope="module")
def step(tmp_path_factory, need_target):
    import hloscope

    file = tmp_path_factory.mktemp("offload") / "train.py"
    file.write_text(CODE)

    def get(name: str, target: str) -> HostOffload:
        need_target(target)
        return Session(hloscope.load(f"{file}:{name}", target=target)).get(HostOffload)

    return get


@pytest.mark.parametrize(
    ("name", "target", "size"),
    [
        ("names", "h100", UP),
        ("names", "v5e", UP),
        ("unrolled", "v5e", UP),  # where no loop's update tells the passes apart
    ],
)
def test_what_a_policy_offloads_goes_to_the_host_once_and_back_once(step, name, target, size):
    found = step(name, target)
    assert found.outcome is OffloadOutcome.CONFIRMED
    assert found.bytes_out == found.bytes_back == size
    makers = {copy.named.op_name.rpartition("/")[2] for copy in found.copies if copy.to_host}
    assert makers == {"dot_general"}


def test_on_a_cpu_nothing_leaves_the_device_and_that_is_said(step):
    found = step("names", "cpu")
    assert found.outcome is OffloadOutcome.MISSING
    assert found.bytes_out == found.bytes_back == 0


def test_a_module_from_before_the_passes_that_move_data_is_read_by_its_markers(
    session_of, fixtures_dir
):
    text = (
        fixtures_dir / "hlo" / "gpu_llama3_8b_activation_offloading_unscheduled.hlo"
    ).read_text()
    found = session_of(text).get(HostOffload)
    # Gate and up of 32 layers; what is moved to the device without having left it is not.
    assert found.bytes_out == found.bytes_back == 32 * 2 * 8192 * 14336 * 2
    assert found.asked is None
    assert found.outcome is OffloadOutcome.UNASKED


@pytest.mark.parametrize("chip", ["gpu", "tpu"])
def test_a_newer_compilers_scan_offloads_each_layers_part(session_of, fixtures_dir, chip):
    text = (fixtures_dir / "compiled" / "today" / f"{chip}_offload.hlo").read_text()
    found = session_of(text).get(HostOffload)
    assert found.bytes_out == found.bytes_back == 6 * 512 * 1024 * 2
    assert {copy.times.exact for copy in found.copies} == {6}


COPIED = """
HloModule m, is_scheduled=true
ENTRY e {
  x = f32[64] parameter(0)
  state = f32[8]{0:S(5)} parameter(1)
  s = f32[8]{0} copy(state)
  h = f32[64] tanh(x), metadata={op_name="jit(f)/jvp(mlp)/tanh"}
  out = (f32[64]{0:S(5)}, f32[64], u32[]) copy-start(h)
  there = f32[64]{0:S(5)} copy-done(out)
  in = (f32[64], f32[64]{0:S(5)}, u32[]) copy-start(there)
  back = f32[64] copy-done(in)
  g = f32[64] multiply(back, x), metadata={op_name="jit(f)/transpose(jvp(mlp))/mul"}
  new = f32[8] add(s, s), metadata={op_name="jit(f)/adam/add"}
  stored = f32[8]{0:S(5)} copy(new)
  ROOT r = (f32[64], f32[8]{0:S(5)}) tuple(g, stored)
}
"""


@pytest.mark.parametrize(
    ("policies", "outcome"),
    [
        ((), OffloadOutcome.UNASKED),
        ((RematPolicy("p", offloads=("a",), host="pinned_host"),), OffloadOutcome.CONFIRMED),
    ],
)
def test_state_that_is_kept_with_the_host_is_no_residual(session_of, policies, outcome):
    found = session_of(COPIED, NamedPoints(policies=policies)).get(HostOffload)
    assert [copy.instruction.name for copy in found.copies] == ["out", "in"]
    assert (found.bytes_out, found.bytes_back) == (256, 256)
    assert found.outcome is outcome


def test_a_value_that_goes_and_never_comes_back_is_not_confirmed(session_of):
    text = COPIED.replace("copy-start(there)", "copy-start(h)").replace(
        "in = (f32[64], f32[64]{0:S(5)}, u32[])", "in = (f32[64], f32[64], u32[])"
    )
    asked = (RematPolicy("p", offloads_products=True, host="pinned_host"),)
    found = session_of(text, NamedPoints(policies=asked)).get(HostOffload)
    assert (found.bytes_out, found.bytes_back) == (256, 0)
    assert found.outcome is OffloadOutcome.MISSING
