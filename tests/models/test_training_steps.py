import functools
import itertools
import math
import re
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hloscope.ir.signature import Role
from hloscope.models import diffusion, registry
from hloscope.models.training import adamw

VARIANTS = [
    (spec.name, {option.name: choice})
    for spec in map(registry.get, registry.names())
    for option in spec.options
    for choice in option.choices or ("2",)
]


DIFFUSION = ("unet", "hierarchical_mmdit")

# Quick to compile: nothing here depends on how well the CPU code is optimized.
QUICK = {"xla_backend_optimization_level": 0}


@functools.cache
def _compiled(name, **options):
    """The smoke step, compiled with every warning an error; donation as in training."""
    step = registry.get(name).build("smoke", options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered = jax.jit(step.fn, donate_argnums=step.donate).lower(*step.args)
        return lowered.compile(compiler_options=QUICK)


@functools.cache
def _initial(name, **options):
    """The smoke state and inputs; to be copied before a step may donate them."""
    training = registry.get(name).training("smoke", options)
    return jax.jit(lambda key: (training.init(key), training.example(key)), compiler_options=QUICK)(
        jax.random.key(0)
    )


def _fresh(name, **options):
    return jax.tree.map(jnp.copy, _initial(name, **options))


def _losses(name, steps, **options):
    state, inputs = _fresh(name)
    step = _compiled(name, **options)
    losses = []
    for _ in range(steps):
        state, metrics = step(state, *inputs)
        losses.append(float(metrics["loss"]))
    assert int(state["step"]) == steps
    return losses


def test_the_language_model_starts_at_a_uniform_guess_and_learns_its_batch():
    losses = _losses("causal_transformer", 30)
    # Logits near zero: the loss is the log of the vocabulary.
    assert losses[0] == pytest.approx(math.log(256), abs=0.1)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFUSION)
def test_a_diffusion_model_starts_at_the_noise_itself_and_learns_its_batch(name):
    losses = _losses(name, 60)
    # The last layer starts at zero, so the error is the noise: variance 1.
    assert losses[0] == pytest.approx(1, abs=0.1)
    assert np.mean(losses[-10:]) < 0.5 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names())
def test_every_state_leaf_of_a_compiled_step_is_aliased(name):
    header = _compiled(name).as_text().split("\n", 1)[0]
    aliases = re.findall(r"\{(\d+)\}: \((\d+), \{\}, \w+-alias\)", header)
    leaves = len(jax.tree.leaves(_initial(name)[0]))
    assert {int(parameter) for _, parameter in aliases} == set(range(leaves))
    assert all(output == parameter for output, parameter in aliases)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_no_state_leaf_changes_shape_or_type(name, options):
    step = registry.get(name).build("smoke", options)
    state, metrics = jax.eval_shape(step.fn, *step.args)
    given, given_tree = jax.tree.flatten(step.args[0])
    taken, taken_tree = jax.tree.flatten(state)
    assert taken_tree == given_tree
    for before, after in zip(given, taken, strict=True):
        assert (after.shape, after.dtype) == (before.shape, before.dtype)
        assert not after.weak_type
    assert {key: (value.shape, value.dtype) for key, value in metrics.items()} == {
        "loss": ((), jnp.float32),
        "grad_norm": ((), jnp.float32),
    }


@pytest.mark.parametrize("name", registry.names())
def test_parameters_and_moments_are_float32_whatever_the_compute_type(name):
    for dtype in ("bfloat16", "float32"):
        state = registry.get(name).build("small", {"dtype": dtype}).args[0]
        floats = jax.tree.leaves((state["params"], state["opt_state"][0].mu))
        assert {leaf.dtype for leaf in floats} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("unet", "['params']['down'][1][0]['block']['conv1']['kernel']"),
        ("unet", "['params']['middle'][0]['attention']['to_text']['query']['kernel']"),
        ("unet", "['opt_state'][0].mu['conv_in']['kernel']"),
        ("causal_transformer", "['params']['layers'][2]['mlp']['gate']['kernel']"),
        ("causal_transformer", "['opt_state'][0].nu['embed']['embedding']"),
        ("causal_transformer", "['step']"),
        ("hierarchical_mmdit", "['params']['down'][0][1]['text']['mlp']['gate']['kernel']"),
        ("hierarchical_mmdit", "['params']['merge'][1]['image']['kernel']"),
        ("hierarchical_mmdit", "['opt_state'][0].mu['middle'][0]['image']['out']['kernel']"),
    ],
)
def test_the_paths_of_the_state_read_as_the_model_is_written(name, path):
    state = registry.get(name).build("small").args[0]
    paths = jax.tree_util.tree_flatten_with_path(state)[0]
    assert path in {jax.tree_util.keystr(keys) for keys, _ in paths}


def test_each_argument_has_its_role_and_the_state_is_donated():
    diffusion_steps = [registry.get(name).build("small") for name in DIFFUSION]
    for step in diffusion_steps:
        assert step.roles == {0: Role.STATE, 1: Role.BATCH, 2: Role.RNG, 3: Role.FROZEN}
    transformer_step = registry.get("causal_transformer").build("small")
    assert transformer_step.roles == {0: Role.STATE, 1: Role.BATCH}
    for step in (*diffusion_steps, transformer_step):
        assert step.donate == (0,)
        assert len(step.args) == len(step.roles)


@pytest.mark.parametrize("name", registry.names())
def test_the_arguments_are_abstract_and_no_step_closes_over_an_array(name):
    step = registry.get(name).build("small")
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(step.args))
    traced = jax.make_jaxpr(step.fn)(*step.args)
    assert sum(np.size(constant) for constant in traced.consts) < 16


def test_building_at_small_allocates_no_state():
    code = """
import resource
from hloscope.models import registry

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

for name in registry.names():
    registry.get(name).build("smoke")
before = peak()
for name in registry.names():
    registry.get(name).build("small")
grown = peak() - before
# The transformer's parameters alone are 268 MB, with moments 803 MB.
assert grown < 100e6, grown
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "option", [{"remat": "full"}, {"remat": "dots"}, {"attention": "reference"}]
)
def test_rematerialization_and_attention_routes_change_no_number(option):
    plain = _losses("causal_transformer", 3, dtype="float32")
    other = _losses("causal_transformer", 3, dtype="float32", **option)
    assert other == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("remat", ["none", "full"])
def test_scanned_layers_compute_what_unrolled_ones_do(remat):
    def stack(tree):
        layers = [tree["layers"][index] for index in range(2)]
        return {**tree, "layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)}

    state, inputs = _fresh("causal_transformer")
    stacked, _ = _fresh("causal_transformer", scan_layers="true")
    stacked["params"] = jax.tree.map(jnp.copy, stack(state["params"]))
    unrolled = _compiled("causal_transformer", dtype="float32")
    scanned = _compiled("causal_transformer", dtype="float32", scan_layers="true", remat=remat)
    state, metrics = unrolled(state, *inputs)
    stacked, stacked_metrics = scanned(stacked, *inputs)
    for name, value in metrics.items():
        assert float(stacked_metrics[name]) == pytest.approx(float(value), rel=1e-5)
    # Before the second moments settle AdamW divides noise by noise where a
    # gradient is nearly zero, so single entries may differ by a part of a step.
    for got, wanted in zip(
        jax.tree.leaves(stacked["params"]), jax.tree.leaves(stack(state["params"])), strict=True
    ):
        np.testing.assert_allclose(got, wanted, atol=5e-5)


def test_scanned_layers_start_from_different_parameters():
    state, _ = _initial("causal_transformer", scan_layers="true")
    kernel = state["params"]["layers"]["mlp"]["gate"]["kernel"]
    assert kernel.shape == (2, 64, 256)
    assert jnp.abs(kernel[0] - kernel[1]).max() > 0.01


def test_kernels_and_embeddings_decay_and_scales_and_biases_do_not():
    optimizer = adamw(0.5)
    params = {0: {"kernel": jnp.ones(3), "bias": jnp.ones(3), "scale": jnp.ones(3)}}
    params[0]["embedding"] = jnp.ones(3)
    gradients = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    changes = {name: float(update[0]) for name, update in updates[0].items()}
    decay = pytest.approx(-0.5 * 0.01)
    assert changes == {"kernel": decay, "bias": 0, "scale": 0, "embedding": decay}


@pytest.mark.slow
def test_the_null_condition_takes_the_captions_place(monkeypatch):
    monkeypatch.setattr(diffusion, "NULL_SHARE", 1.0)
    step = jax.jit(registry.get("unet").build("smoke").fn, compiler_options=QUICK)

    def gradient(captions, empty):
        state, (batch, key, null_text) = _initial("unet")
        batch = {**batch, "text": batch["text"] + captions}
        return float(step(state, batch, key, null_text + empty)[1]["grad_norm"])

    plain = gradient(0, 0)
    assert gradient(1, 0) == plain
    assert gradient(0, 1) != plain


@pytest.mark.slow
def test_every_step_draws_new_noise_from_one_key():
    losses = []
    for number in (0, 0, 1, 2):
        state, inputs = _fresh("unet")
        state["step"] = jnp.int32(number)
        losses.append(float(_compiled("unet")(state, *inputs)[1]["loss"]))
    assert losses[0] == losses[1]
    assert all(first != second for first, second in itertools.pairwise(losses[1:]))
