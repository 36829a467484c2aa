"""HS707: exchanges that a checkpoint runs a second time."""

from __future__ import annotations

import pytest

TENSOR = """
from functools import partial
from jax.ad_checkpoint import checkpoint_name

def make(devices):
    mesh = Mesh(np.array(devices), ("tensor",))

    def layer(x, w):
        x = jax.lax.all_gather(x, "tensor", axis=1, tiled=True)
        {name}
        return jnp.tanh(jnp.tanh(x @ w))

    layer = {checkpoint}

    def loss(x, ws):
        for w in ws:
            x = layer(x, w)
        return jax.lax.psum((x ** 2).sum(), "tensor")

    specs = (P(None, "tensor"), [P(None, "tensor")] * 3)
    total = jax.shard_map(loss, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    sharded = NamedSharding(mesh, P(None, "tensor"))
    x = shape(256, 512, sharding=sharded)
    ws = [shape(512, 512, sharding=sharded) for _ in range(3)]
    return Step(jax.grad(total, argnums=1), (x, ws))

step = make
"""
REPLAYED = TENSOR.format(name="", checkpoint="jax.checkpoint(layer)")
KEPT = TENSOR.format(
    name='x = checkpoint_name(x, "gathered")',
    checkpoint="jax.checkpoint(layer, policy="
    'jax.checkpoint_policies.save_only_these_names("gathered"))',
)
NONE = TENSOR.format(name="", checkpoint="layer")

FSDP = """
def make(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    sharded = NamedSharding(mesh, P("fsdp"))

    @jax.checkpoint
    def layer(x, w):
        return jnp.tanh(x @ w)

    def loss(ws, x):
        for w in ws:
            x = layer(x, w)
        return (x ** 2).sum()

    ws = [shape(512, 512, sharding=sharded) for _ in range(3)]
    return Step(jax.grad(loss), (ws, shape(1024, 512, sharding=sharded)))

step = make
"""


@pytest.mark.parametrize("target", ["cpu:4", "h100:4", "v5e:2x2"])
def test_a_gather_inside_a_checkpointed_layer_is_found_on_its_line(found_in, target):
    findings = found_in("HS707", REPLAYED, target)
    assert findings
    assert {finding.site.file for finding in findings} == {"train.py"}
    assert {finding.message.split(" runs")[0] for finding in findings} == {"all-gather over tensor"}


@pytest.mark.parametrize("target", ["cpu:4", "h100:4", "v5e:2x2"])
@pytest.mark.parametrize("code", [KEPT, NONE], ids=["kept by name", "no checkpoint"])
def test_a_gather_whose_result_is_kept_is_left_alone(found_in, code, target):
    assert found_in("HS707", code, target) == ()


def test_gathered_weights_that_the_backward_pass_needs_are_left_alone(found_in):
    assert found_in("HS707", FSDP, "cpu:4") == ()


def test_a_step_on_one_device_exchanges_nothing(findings_of, fixtures_dir):
    text = (fixtures_dir / "compiled" / "today" / "gpu_scan_remat.hlo").read_text()
    assert findings_of("HS707", text) == ()
