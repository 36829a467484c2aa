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
from quick_compile import QUICK

from hloscope.chips import ChipKind
from hloscope.ir.signature import Role
from hloscope.models import diffusion, registry


def _variants(spec):
    """Options for as many steps as one option has values: each value is in one of them."""
    # cuDNN's attention asks for its library while it is traced.
    values = {
        o.name: [value for value in o.choices if o.kinds.get(value) is not ChipKind.GPU]
        + [f"{word}:attention_out+mlp_up" for word in o.listing]
        for o in spec.options
    }
    for number in range(max(map(len, values.values()))):
        yield {name: of[number % len(of)] if of else "2" for name, of in values.items()}


VARIANTS = [
    (spec.name, options)
    for spec in map(registry.get, registry.names())
    for options in _variants(spec)
]

JEPA = ("jepa_encoder", "jepa_video_encoder")
LANGUAGE = ("causal_transformer", "gated_deltanet", "moe_transformer", "ssm")
DIFFUSION = tuple(n for n in registry.names() if n not in (*LANGUAGE, *JEPA))


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


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_language_model_starts_at_a_uniform_guess_and_learns_its_batch(name):
    losses = _losses(name, 30)
    # Logits near zero: the loss is the log of the vocabulary.
    assert losses[0] == pytest.approx(math.log(256), abs=0.1)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFUSION)
def test_a_diffusion_model_starts_at_the_noise_itself_and_learns_its_batch(name):
    losses = _losses(name, 60)
    # The last layer starts at zero, so the error is the noise: variance 1.
    assert losses[0] == pytest.approx(1, abs=0.1)
    assert np.mean(losses[-10:]) < 0.6 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", JEPA)
def test_an_encoder_learns_the_features_of_what_it_does_not_see(name):
    losses = _losses(name, 40)
    # Features have variance 1, and the prediction starts with up to twice as much.
    assert 1 < losses[0] < 3
    assert np.mean(losses[-10:]) < 0.7 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", JEPA)
def test_the_target_follows_the_encoder_slowly(name):
    state, inputs = _fresh(name)
    target, encoder = state["target"], state["params"]["encoder"]
    for old, new in zip(jax.tree.leaves(target), jax.tree.leaves(encoder), strict=True):
        np.testing.assert_array_equal(old, new)
    old = jax.tree.map(jnp.copy, target)
    state, _ = _compiled(name)(state, *inputs)
    wanted = jax.tree.map(lambda a, b: a + 0.004 * (b - a), old, state["params"]["encoder"])
    for got, expected in zip(
        jax.tree.leaves(state["target"]), jax.tree.leaves(wanted), strict=True
    ):
        np.testing.assert_allclose(got, expected, atol=1e-7)


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
def test_parameters_and_moments_are_float32_whatever_the_compute_type(name, built):
    for dtype in ("bfloat16", "float32"):
        state = built(name, "smoke", dtype=dtype).args[0]
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
        ("moe_transformer", "['params']['layers'][0]['mlp']['gate']['kernel']"),
        ("moe_transformer", "['params']['layers'][1]['experts']['gate']['kernel']"),
        ("hierarchical_mmdit", "['params']['down'][0][1]['text']['mlp']['gate']['kernel']"),
        ("hierarchical_mmdit", "['params']['merge'][1]['image']['kernel']"),
        ("hierarchical_mmdit", "['opt_state'][0].mu['middle'][0]['image']['out']['kernel']"),
        ("simple_dit", "['params']['blocks']['attention']['branch']['query']['kernel']"),
        ("simple_mmdit", "['params']['blocks']['text']['mlp']['gate']['kernel']"),
        ("simple_udit", "['params']['blocks']['last']['join']['kernel']"),
        ("uvit", "['params']['blocks']['middle']['mlp']['up']['kernel']"),
        ("jepa_encoder", "['target']['blocks']['mlp']['up']['kernel']"),
        ("video_dit", "['params']['blocks']['across']['modulation']['kernel']"),
        ("unet_3d", "['params']['down'][0][0]['along_time']['kernel']"),
        ("ssm", "['params']['layers']['convolution']['taps']"),
        ("gated_deltanet", "['opt_state'][0].mu['layers']['cell']['decay']['rate']"),
        ("hybrid_dit", "['params']['groups']['recurrent'][1]['state_space']['branch']['rate']"),
    ],
)
def test_the_paths_of_the_state_read_as_the_model_is_written(name, path, built):
    state = built(name).args[0]
    paths = jax.tree_util.tree_flatten_with_path(state)[0]
    assert path in {jax.tree_util.keystr(keys) for keys, _ in paths}


def test_each_argument_has_its_role_and_the_state_is_donated(built):
    diffusion_steps = [built(name) for name in DIFFUSION]
    for step in diffusion_steps:
        assert step.roles == {0: Role.STATE, 1: Role.BATCH, 2: Role.RNG, 3: Role.FROZEN}
    language_steps = [built(name) for name in LANGUAGE]
    for step in map(built, JEPA):
        assert step.roles == {0: Role.STATE, 1: Role.BATCH, 2: Role.RNG}
    for step in language_steps:
        assert step.roles == {0: Role.STATE, 1: Role.BATCH}
    for step in (*diffusion_steps, *language_steps):
        assert step.donate == (0,)
        assert len(step.args) == len(step.roles)


@pytest.mark.parametrize("name", registry.names())
def test_the_arguments_are_abstract_and_no_step_closes_over_an_array(name, built, traced):
    leaves = jax.tree.leaves(built(name).args)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert sum(np.size(constant) for constant in traced(name).consts) < 16


@pytest.mark.parametrize("name", registry.names())
def test_every_parameter_has_a_gradient(name, built, traced):
    # A parameter that nothing reads comes with moments that only ever decay.
    jaxpr = traced(name).jaxpr
    state = jax.tree_util.tree_flatten_with_path(built(name).args[0])[0]
    read = _read_before_the_optimizer(jaxpr)
    for variable, (path, _) in zip(jaxpr.invars, state, strict=False):
        if path[0].key == "params":
            assert variable in read, jax.tree_util.keystr(path)


def _read_before_the_optimizer(jaxpr):
    return {
        variable
        for equation in jaxpr.eqns
        if "optimizer" not in str(equation.source_info.name_stack)
        for variable in equation.invars
        if not hasattr(variable, "val")
    }


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
    "option",
    [
        {"remat": "full"},
        {"remat": "dots"},
        {"remat": "names:attention_out+mlp_up"},
        {"attention": "reference"},
        {"head_chunks": "4"},
    ],
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
