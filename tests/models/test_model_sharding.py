import functools
import json
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
from hloscope.models.sharding import parameter_spec, place_state

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
    path = "params.layers.1.experts.gate.kernel"
    assert parameter_spec((8, 64, 256), mesh, path) == PartitionSpec()
    assert parameter_spec((9, 64, 256), mesh, path) == PartitionSpec("expert", None, None)


@pytest.mark.parametrize(
    ("path", "shape", "spec"),
    [
        ("params.layers.0.attention.query.kernel", (64, 64), ("fsdp", "tensor")),
        ("opt_state.0.mu.layers.0.attention.value.kernel", (64, 64), ("fsdp", "tensor")),
        ("params.layers.0.attention.out.kernel", (64, 64), ("tensor", "fsdp")),
        ("params.blocks.attention.branch.out.kernel", (6, 64, 64), (None, "tensor", "fsdp")),
        ("params.within.branch.attention.out.kernel", (64, 64), ("tensor", "fsdp")),
        ("params.layers.0.mlp.gate.kernel", (64, 256), ("fsdp", "tensor")),
        ("params.layers.mlp.up.kernel", (2, 64, 256), (None, "fsdp", "tensor")),
        ("params.blocks.mlp.branch.up.bias", (6, 256), (None, "tensor")),
        ("params.layers.0.mlp.down.kernel", (256, 64), ("tensor", "fsdp")),
        ("params.blocks.mlp.branch.down.bias", (6, 64), ()),
        ("params.embed.embedding", (256, 64), ("tensor", "fsdp")),
        ("params.layers.1.experts.up.kernel", (8, 64, 256), ("expert", "fsdp", "tensor")),
        ("params.layers.1.experts.down.kernel", (8, 256, 64), ("expert", "tensor", "fsdp")),
        # Not of an attention or an MLP.
        ("params.head.out.kernel", (64, 128), (None, "fsdp")),
        ("params.groups.state_space.branch.out.kernel", (64, 64), (None, "fsdp")),
        ("params.layers.0.norm1.scale", (64,), ()),
    ],
)
def test_heads_hidden_channels_and_words_are_split_over_tensor(path, shape, spec):
    mesh = AbstractMesh((2, 2, 2), ("fsdp", "tensor", "expert"))
    assert parameter_spec(shape, mesh, path) == PartitionSpec(*spec)


@pytest.mark.parametrize("name", [n for n in registry.names() if "tensor" in registry.get(n).axes])
def test_every_attention_and_mlp_of_an_architecture_is_split_over_tensor(name):
    # Three heads do not go over two devices: of the rules the paths and shapes are enough.
    state, _ = registry.get(name).training("smoke").abstract()
    mesh = AbstractMesh((2,), ("tensor",))
    places = place_state({"params": state["params"]}, mesh)
    for path, place in jax.tree_util.tree_leaves_with_path(places):
        keys = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
        inside = {"query", "key", "value", "gate", "up"} & set(keys) or keys[-2] == "down"
        attended = keys[-2] == "out" and "attention" in keys
        summed = keys[-2:] == ["down", "bias"]
        embedded = keys[-1] == "embedding"
        split = bool((inside or attended or embedded) and not summed)
        assert ("tensor" in place.spec) == split, keys


@pytest.mark.parametrize(
    "name", [n for n in registry.names() if "sequence" in registry.get(n).axes]
)
def test_sequence_splits_the_samples_and_leaves_the_state_whole(name):
    mesh = AbstractMesh((2, 2), ("data", "sequence"))
    state, batch, *_ = registry.get(name).build("smoke", mesh=mesh).args
    assert {spec for _, spec in _specs(state)} == {PartitionSpec()}
    assert {spec for _, spec in _specs(batch)} == {PartitionSpec("data", "sequence")}


@pytest.mark.parametrize(
    ("name", "options", "mesh", "said", "sizes"),
    [
        ("causal_transformer", {}, {"tensor": 8}, "tensor=8 does not divide 4 heads", "1, 2, 4"),
        ("simple_dit", {}, {"tensor": 2}, "tensor=2 does not divide 3 heads", "1, 3"),
        (
            *("moe_transformer", {"batch": "6"}, {"expert": 3}),
            *("expert=3 does not divide 8 experts", "1, 2, 4, 8"),
        ),
        (
            *("jepa_encoder", {}, {"tensor": 3}),
            *("tensor=3 does not divide 2 heads of the predictor", "1"),
        ),
        ("simple_udit", {}, {"sequence": 3}, "sequence=3 does not divide 8 rows", "1, 2, 4, 8"),
        (
            *("causal_transformer", {"head_chunks": "16"}, {"sequence": 4}),
            *("sequence=4 does not divide 2 tokens of a chunk", "1, 2"),
        ),
        (
            *("simple_dit", {"attention": "cudnn"}, {"sequence": 2}),
            *("does not divide 1 sequence, which attention=cudnn takes whole", "1"),
        ),
    ],
)
def test_an_axis_that_does_not_divide_what_it_splits_is_refused(name, options, mesh, said, sizes):
    laid = AbstractMesh(tuple(mesh.values()), tuple(mesh))
    with pytest.raises(UsageError, match=said) as error:
        registry.get(name).build("smoke", options, laid)
    assert error.value.hint == (f"Sizes of {next(iter(mesh))} that fit the model are: {sizes}.")


def test_heads_of_keys_that_several_heads_share_are_divided_too():
    with pytest.raises(UsageError, match="tensor=8 does not divide 4 heads of keys"):
        registry.get("causal_transformer").build("base", {}, AbstractMesh((8,), ("tensor",)))


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
import dataclasses, importlib, json, re, sys
import jax, numpy
from hloscope.models import registry

name, shapes, options, *meshes = json.loads(sys.argv[1])
spec = registry.get(name)
presets = importlib.import_module(spec.module).PRESETS
presets["smoke"] = dataclasses.replace(presets["smoke"], **shapes)
options = {"dtype": "float32", **options}
training = spec.training("smoke", options)
state = jax.jit(training.init)(jax.random.key(0))
# Gates that start closed would keep every gradient out of their branches.
state["params"] = jax.tree.map(
    lambda p: p + 0.05 * jax.random.normal(jax.random.key(2), p.shape), state["params"]
)
inputs = training.example(jax.random.key(1))
whole = training.build()
following, expected = jax.jit(whole.fn)(state, *inputs)
wanted = jax.tree.leaves(following["opt_state"][0].mu)
assert all(numpy.any(leaf) for leaf in wanted)

for mesh in meshes:
    number = numpy.prod(list(mesh.values()))
    step = spec.build("smoke", options, mesh, jax.devices()[:number])
    places = jax.tree.map(lambda leaf: leaf.sharding, step.args)
    jitted = jax.jit(step.fn, donate_argnums=step.donate, out_shardings=step.out_shardings)
    compiled = jitted.lower(*step.args).compile()
    header = compiled.as_text().split("\\n", 1)[0]
    assert f"num_partitions={number}" in header
    leaves = len(jax.tree.leaves(state))
    aliased = len(set(re.findall(r"\\((\\d+), \\{\\}, \\w+-alias\\)", header)))
    assert aliased == leaves, (aliased, leaves)
    copied = jax.tree.map(jax.numpy.copy, state)
    got, metrics = compiled(*jax.device_put((copied, *inputs), places))
    assert jax.tree.map(lambda leaf: leaf.sharding, got) == places[0]
    for metric, value in expected.items():
        assert abs(metrics[metric] - value) < 1e-4 * abs(value), (mesh, metric, metrics[metric])
    # The gradients, that is: an update of Adam's is their sign where they are small.
    for (path, leaf), value in zip(
        jax.tree.leaves_with_path(got["opt_state"][0].mu), wanted, strict=True
    ):
        error = numpy.abs(leaf - value).max() / numpy.abs(value).max()
        assert error < 1e-3, (mesh, jax.tree_util.keystr(path), error)
"""
FOUR_HEADS = {"heads": 4, "layers": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shapes", "options", "meshes"),
    [
        (
            *("causal_transformer", {}, {}),
            [
                {"data": 2, "fsdp": 4},
                {"tensor": 2},
                {"fsdp": 2, "tensor": 4},
                {"sequence": 2},
                {"data": 2, "sequence": 2, "tensor": 2},
            ],
        ),
        (
            *("causal_transformer", {"key_heads": 2, "tied": False}),
            {"scan_layers": "true", "head_chunks": "2"},
            [{"data": 2, "sequence": 2, "tensor": 2}],
        ),
        (
            *("moe_transformer", {}, {}),
            [{"data": 2, "expert": 4}, {"expert": 2, "sequence": 2, "tensor": 2}],
        ),
        ("hierarchical_mmdit", {}, {}, [{"data": 2, "fsdp": 4}]),
        ("unet", {}, {}, [{"data": 2, "fsdp": 4}]),
        ("simple_udit", {"layers": 3, "heads": 4}, {}, [{"fsdp": 2, "sequence": 2, "tensor": 2}]),
        ("video_dit", FOUR_HEADS, {}, [{"fsdp": 2, "tensor": 4}]),
        (
            *("jepa_encoder", {**FOUR_HEADS, "predictor_heads": 4, "predictor_layers": 1}, {}),
            [{"data": 2, "tensor": 4}],
        ),
    ],
)
def test_several_devices_alias_the_whole_state_and_compute_what_one_does(
    name, shapes, options, meshes
):
    flags = " ".join(
        (
            "--xla_force_host_platform_device_count=8",
            *(f"--{option}={str(value).lower()}" for option, value in QUICK.items()),
        )
    )
    asked = json.dumps([name, shapes, options, *meshes])
    subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", SHARDED_RUN, asked],
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )
