"""Named values of the jaxpr, held against what JAX itself says that it saves."""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name, print_saved_residuals

from hloscope.capture.named_points import find_named_points
from hloscope.ir.named_points import Crossing

LAYERS, BATCH, LENGTH, WIDTH, HIDDEN = 4, 2, 16, 32, 128
POLICIES = jax.checkpoint_policies


def shape(*sizes, dtype="float32"):
    return jax.ShapeDtypeStruct(sizes, dtype)


PARAMS = {
    "wq": shape(LAYERS, WIDTH, WIDTH),
    "wo": shape(LAYERS, WIDTH, WIDTH),
    "up": shape(LAYERS, WIDTH, HIDDEN),
    "down": shape(LAYERS, HIDDEN, WIDTH),
}
X = shape(BATCH, LENGTH, WIDTH)


def block(p, h):
    a = checkpoint_name(jnp.sin(h @ p["wq"]), "attn_out")
    h = h + a @ p["wo"]
    u = checkpoint_name(h @ p["up"], "ffn_in")
    o = checkpoint_name(jax.nn.gelu(u) @ p["down"], "ffn_out")
    return h + jnp.tanh(o)


def decoder(run, *, scan):
    def loss(params, h):
        if scan:
            h, _ = jax.lax.scan(lambda h, p: (run(p, h), None), h, params)
        else:
            for layer in range(LAYERS):
                h = run({name: w[layer] for name, w in params.items()}, h)
        return (h * h).sum()

    return loss


def points_of(loss, *arguments):
    return find_named_points(jax.jit(jax.grad(loss)).trace(*arguments).jaxpr)


RUNS = {
    "none": block,
    "full": jax.checkpoint(block),
    "names": jax.checkpoint(block, policy=POLICIES.save_only_these_names("attn_out", "ffn_in")),
    "but one": jax.checkpoint(block, policy=POLICIES.save_any_names_but_these("ffn_in")),
    "dots": jax.checkpoint(block, policy=POLICIES.dots_saveable),
}


@pytest.mark.parametrize("run", RUNS)
def test_the_names_that_jax_saves_are_those_that_are_kept(run, capsys):
    loss = decoder(RUNS[run], scan=False)
    print_saved_residuals(loss, PARAMS, X)
    saved = Counter(re.findall(r"named '(\w+)'", capsys.readouterr().out))
    points = points_of(loss, PARAMS, X).points
    assert {point.name for point in points} == {"attn_out", "ffn_in", "ffn_out"}
    if run != "dots":  # of a product that both sides keep JAX names the product
        kept = {p.name: p.equations for p in points if p.crossing is Crossing.KEPT}
        assert kept == saved
    for point in points:
        assert (point.equations, point.loops, point.values) == (LAYERS, (), LAYERS)
        again = run != "none" and point.crossing is Crossing.NOT_KEPT
        assert point.recomputed == (LAYERS if again else 0)


def test_in_a_scan_a_value_is_one_of_as_many_as_it_runs():
    named = points_of(decoder(RUNS["names"], scan=True), PARAMS, X)
    attention, up, down = named.points
    assert (attention.name, attention.dtype) == ("attn_out", "f32")
    assert attention.dimensions == (BATCH, LENGTH, WIDTH)
    assert up.dimensions == (BATCH, LENGTH, HIDDEN)
    assert {point.loops for point in named.points} == {(LAYERS,)}
    assert {point.values for point in named.points} == {LAYERS}
    assert (attention.maker.primitive, up.maker.primitive) == ("sin", "dot_general")
    crossings = [point.crossing for point in named.points]
    assert crossings == [Crossing.KEPT, Crossing.KEPT, Crossing.NOT_KEPT]
    assert [point.recomputed for point in named.points] == [0, 0, 1]
    first = block.__code__.co_firstlineno
    assert [point.line - first for point in named.points] == [1, 3, 4]
    assert all(point.file.endswith("test_named_points.py") for point in named.points)
    assert (up.maker.file, up.maker.line) == (up.file, up.line)
    assert "jvp(" in up.maker.scope
    assert down.maker.primitive == "dot_general"


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (None, "nothing_saveable"),
        (POLICIES.everything_saveable, "everything_saveable"),
        (POLICIES.dots_saveable, "dots_saveable"),
        (POLICIES.dots_with_no_batch_dims_saveable, "dots_with_no_batch_dims_saveable"),
        (POLICIES.save_only_these_names("b", "a"), "save_only_these_names(a, b)"),
        (POLICIES.save_any_names_but_these("a"), "save_any_names_but_these(a)"),
        (
            POLICIES.save_from_both_policies(
                POLICIES.dots_saveable, POLICIES.save_only_these_names("a")
            ),
            "save_from_both_policies(dots_saveable; save_only_these_names(a))",
        ),
    ],
)
def test_policies_are_said_as_they_were_written(policy, words):
    run = jax.checkpoint(block, policy=policy)
    (found,) = points_of(decoder(run, scan=True), PARAMS, X).policies
    assert found.words == words


def test_the_value_of_a_block_is_kept_as_the_input_of_the_next():
    def run(p, h):
        return checkpoint_name(block(p, h), "block_out")

    (point,) = (
        point
        for point in points_of(decoder(jax.checkpoint(run), scan=True), PARAMS, X).points
        if point.name == "block_out"
    )
    assert point.crossing is Crossing.KEPT
    assert point.maker.primitive == "add"


def test_of_a_carried_value_that_only_the_end_needs_the_last_is_kept():
    def loss(x):
        h, _ = jax.lax.scan(lambda h, _: (checkpoint_name(h + 1.0, "h"), None), x, length=5)
        return (h * h).sum()

    (point,) = points_of(loss, X).points
    assert (point.crossing, point.loops) == (Crossing.LAST, (5,))


def test_a_name_inside_jit_and_behind_a_reshape_is_followed():
    @jax.jit
    def inner(w, x):
        h = checkpoint_name(jnp.tanh(x @ w), "inner")
        return h.reshape(-1, WIDTH)

    def loss(w, x):
        h = inner(w, x)
        return (h * h).sum()

    (point,) = points_of(loss, shape(WIDTH, WIDTH), X).points
    assert point.crossing is Crossing.KEPT
    assert point.maker.primitive == "tanh"


def test_without_a_backward_pass_nothing_is_kept():
    jaxpr = jax.jit(decoder(block, scan=True)).trace(PARAMS, X).jaxpr
    points = find_named_points(jaxpr).points
    assert {point.crossing for point in points} == {Crossing.NOT_KEPT}
    assert find_named_points(jax.make_jaxpr(jnp.sin)(1.0)) == type(find_named_points(jaxpr))()


def test_in_a_loop_of_unknown_length_the_number_is_unknown():
    def loss(x):
        return jax.lax.while_loop(
            lambda h: h.sum() < 100.0, lambda h: checkpoint_name(h + 1.0, "h"), x
        ).sum()

    (point,) = find_named_points(jax.make_jaxpr(loss)(jnp.zeros(3))).points
    assert (point.loops, point.values) == ((None,), None)


def test_a_value_that_a_policy_offloads_crosses_in_the_memory_of_the_host():
    policy = POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["ffn_in"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    loss = decoder(jax.checkpoint(block, policy=policy), scan=True)
    named = points_of(loss, PARAMS, X)
    fates = {point.name: point.crossing for point in named.points}
    assert fates == {
        "attn_out": Crossing.NOT_KEPT,
        "ffn_in": Crossing.KEPT,
        "ffn_out": Crossing.NOT_KEPT,
    }
    (found,) = named.policies
    assert found.words == "save_and_offload_only_these_names(ffn_in)"
    assert (found.offloads, found.host) == (("ffn_in",), "pinned_host")


def test_every_name_is_known_also_of_what_no_result_needs():
    def loss(x):
        checkpoint_name(x * 2.0, "unused")
        h, _ = jax.lax.scan(lambda h, _: (checkpoint_name(h + 1.0, "h"), None), x, length=2)
        return h.sum()

    found = points_of(loss, X)
    assert set(found.names) == {"unused", "h"}
    assert "unused" not in {point.name for point in found.points}
