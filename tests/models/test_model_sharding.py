import functools
import math
import os
import subprocess
import sys

import jax
import pytest
from jax.sharding import AbstractMesh, PartitionSpec
from quick_compile import QUICK

from hloscope.errors import UsageError
from hloscope.models import registry
from hloscope.models.sharding import parameter_spec

MESH = AbstractMesh((2, 4), ("data", "fsdp"))


@functools.cache
def _meshed(name):
    # The batch of the video models is 4, and the mesh has 8 devices.
    return registry.get(name).build("small", {"batch": "8"}, mesh=MESH)


def _specs(tree):
    return [(leaf.shape, leaf.sharding.spec) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((50304, 768), PartitionSpec("fsdp", None)),
        ((768, 3072), PartitionSpec(None, "fsdp")),
        ((768, 768), PartitionSpec(None, "fsdp")),
        ((3, 3, 128, 160), PartitionSpec(None, None, None, "fsdp")),
        ((50303, 768), PartitionSpec(None, "fsdp")),
        ((1023, 4095), PartitionSpec()),
        ((64, 63), PartitionSpec()),
        ((64, 64), PartitionSpec(None, "fsdp")),
        ((), PartitionSpec()),
    ],
)
def test_parameters_are_split_on_their_largest_divisible_dimension(shape, spec):
    assert parameter_spec(shape, MESH) == spec


def test_without_an_fsdp_axis_parameters_are_replicated():
    assert parameter_spec((768, 768), AbstractMesh((8,), ("data",))) == PartitionSpec()


def test_experts_are_split_over_their_own_axis_and_fsdp_splits_another():
    mesh = AbstractMesh((2, 4), ("fsdp", "expert"))
    state = registry.get("moe_transformer").build("smoke", mesh=mesh).args[0]
    for tree in (state["params"], state["opt_state"][0].mu):
        dense, routed = tree["layers"][0], tree["layers"][1]
        specs = {
            "gate": routed["experts"]["gate"],
            "down": routed["experts"]["down"],
            "router": routed["experts"]["router"],
            "dense": dense["mlp"]["gate"],
        }
        assert {name: part["kernel"].sharding.spec for name, part in specs.items()} == {
            "gate": PartitionSpec("expert", None, "fsdp"),
            "down": PartitionSpec("expert", "fsdp", None),
            "router": PartitionSpec(),
            "dense": PartitionSpec(None, "fsdp"),
        }


def test_experts_that_the_axis_does_not_divide_are_whole_on_each_device():
    mesh = AbstractMesh((3,), ("expert",))
    assert parameter_spec((8, 64, 256), mesh, experts=0) == PartitionSpec()
    assert parameter_spec((9, 64, 256), mesh, experts=0) == PartitionSpec("expert", None, None)


@pytest.mark.parametrize("name", registry.names())
def test_every_large_leaf_of_the_state_is_split_and_every_small_one_whole(name):
    step = _meshed(name)
    state = step.args[0]
    for shape, spec in _specs(state):
        large = math.prod(shape) >= 4096 and any(extent % 4 == 0 for extent in shape)
        assert ("fsdp" in spec) == large, shape
    moments = state["opt_state"][0]
    assert _specs(state["params"]) == _specs(moments.mu) == _specs(moments.nu)


@pytest.mark.parametrize("name", registry.names())
def test_the_state_comes_out_where_it_went_in(name):
    step = _meshed(name)
    places = jax.tree.map(lambda leaf: leaf.sharding, step.args[0])
    out_places, metrics_place = step.out_shardings
    assert out_places == places
    assert metrics_place.spec == PartitionSpec()


@pytest.mark.parametrize("name", registry.names())
def test_the_batch_is_split_over_both_axes_and_the_rest_is_whole(name):
    step = _meshed(name)
    batch, *others = step.args[1:]
    assert {spec for _, spec in _specs(batch)} == {PartitionSpec(("data", "fsdp"))}
    assert all(spec == PartitionSpec() for _, spec in _specs(others))


@pytest.mark.parametrize("mesh", [None, {}])
@pytest.mark.parametrize("name", registry.names())
def test_without_a_mesh_nothing_is_sharded(name, mesh):
    step = registry.get(name).build("smoke", mesh=mesh)
    assert all(leaf.sharding is None for leaf in jax.tree.leaves(step.args))
    assert step.out_shardings is None


def test_a_mesh_that_does_not_fit_the_devices_is_refused_with_the_arithmetic():
    with pytest.raises(UsageError, match=r"2 x 4 = 8 devices asked for, the target has 1") as error:
        registry.get("unet").build("smoke", {}, {"data": 2, "fsdp": 4}, jax.devices()[:1])
    assert error.value.place == "--mesh data=2,fsdp=4"


def test_a_batch_that_the_devices_do_not_divide_is_refused():
    with pytest.raises(UsageError, match="a batch of 12 cannot be split over 8 devices"):
        registry.get("unet").build("smoke", {"batch": "12"}, MESH)


SHARDED_RUN = """
import re, sys
import jax
from hloscope.models import registry

spec = registry.get(sys.argv[1])
training = spec.training("smoke", {"dtype": "float32"})
state = jax.jit(training.init)(jax.random.key(0))
inputs = training.example(jax.random.key(1))
whole = training.build()
_, expected = jax.jit(whole.fn)(state, *inputs)

step = spec.build("smoke", {"dtype": "float32"}, {"data": 2, sys.argv[2]: 4}, jax.devices())
places = jax.tree.map(lambda leaf: leaf.sharding, step.args)
jitted = jax.jit(step.fn, donate_argnums=step.donate, out_shardings=step.out_shardings)
compiled = jitted.lower(*step.args).compile()
header = compiled.as_text().split("\\n", 1)[0]
assert "num_partitions=8" in header
leaves = len(jax.tree.leaves(state))
aliased = len(set(re.findall(r"\\((\\d+), \\{\\}, \\w+-alias\\)", header)))
assert aliased == leaves, (aliased, leaves)
_, metrics = compiled(*jax.device_put((state, *inputs), places))
for name, value in expected.items():
    assert abs(metrics[name] - value) < 1e-4 * abs(value), (name, metrics[name], value)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("causal_transformer", "fsdp"),
        ("moe_transformer", "expert"),
        ("hierarchical_mmdit", "fsdp"),
        ("unet", "fsdp"),
        ("simple_udit", "fsdp"),
        ("jepa_encoder", "fsdp"),
    ],
)
def test_eight_devices_alias_the_whole_state_and_compute_what_one_does(name, axis):
    flags = " ".join(
        (
            "--xla_force_host_platform_device_count=8",
            *(f"--{option}={str(value).lower()}" for option, value in QUICK.items()),
        )
    )
    subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", SHARDED_RUN, name, axis],
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )
