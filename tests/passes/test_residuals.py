"""What a scanned decoder keeps, against JAX's own list and the arithmetic of its shapes."""

import re
import runpy
from collections import Counter
from math import prod

import pytest

from hloscope.ir.named_points import Crossing
from hloscope.passes.named_residuals import NamedResiduals
from hloscope.passes.residuals import Residuals
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session

LAYERS, BATCH, LENGTH, WIDTH, HIDDEN = 4, 2, 16, 32, 128
TOKENS = BATCH * LENGTH

DECODER = f"""
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from hloscope import Step

def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, "float32")

def block(p, h):
    a = checkpoint_name(jnp.sin(h @ p["wq"]), "attn_out")
    h = h + a @ p["wo"]
    u = checkpoint_name(h @ p["up"], "ffn_in")
    o = checkpoint_name(jax.nn.gelu(u) @ p["down"], "ffn_out")
    return h + jnp.tanh(o)

names = jax.checkpoint_policies.save_only_these_names("attn_out", "ffn_in")
RUNS = {{
    "none": block,
    "full": jax.checkpoint(block, prevent_cse=False),
    "names": jax.checkpoint(block, policy=names, prevent_cse=False),
}}
ARGUMENTS = (
    {{
        "wq": shape({LAYERS}, {WIDTH}, {WIDTH}),
        "wo": shape({LAYERS}, {WIDTH}, {WIDTH}),
        "up": shape({LAYERS}, {WIDTH}, {HIDDEN}),
        "down": shape({LAYERS}, {HIDDEN}, {WIDTH}),
    }},
    shape({BATCH}, {LENGTH}, {WIDTH}),
)

def loss_of(run):
    def loss(params, h):
        h, _ = jax.lax.scan(lambda h, p: (RUNS[run](p, h), None), h, params)
        return (h * h).sum()
    return loss

def step_of(run, arguments=ARGUMENTS):
    return Step(jax.value_and_grad(loss_of(run)), arguments)

none, full, names = step_of("none"), step_of("full"), step_of("names")
narrow = step_of(
    "names", jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, "bfloat16"), ARGUMENTS)
)
"""


@pytest.fixture(scope="module")
def decoder_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("decoder") / "decoder.py"
    file.write_text(DECODER)
    return file


@pytest.fixture(scope="module")
def decoder(decoder_file, need_target):
    """A session over the decoder with one policy on one target; each is compiled once."""
    import hloscope

    load_passes()
    done = {}

    def get(run, target):
        if (run, target) not in done:
            need_target(target)
            done[run, target] = Session(hloscope.load(f"{decoder_file}:{run}", target=target))
        return done[run, target]

    return get


def saved_by_jax(decoder_file, run, capsys):
    """Elements of the stacked arrays that JAX says the loop saves."""
    from jax.ad_checkpoint import print_saved_residuals

    program = runpy.run_path(str(decoder_file))
    print_saved_residuals(program["loss_of"](run), *program["ARGUMENTS"])
    arrays = re.findall(r"f32\[([\d,]+)\] output of scan", capsys.readouterr().out)
    shapes = [tuple(map(int, sizes.split(","))) for sizes in arrays]
    return Counter(prod(sizes) for sizes in shapes if len(sizes) == 4)


CASES = [
    ("none", "cpu"),
    ("full", "cpu"),
    ("names", "cpu"),
    ("none", "h100"),
    ("names", "h100"),
    ("full", "v5e"),
    ("names", "v5e"),
]


@pytest.mark.parametrize(("run", "target"), CASES)
def test_the_loop_stacks_what_jax_says_that_it_saves(decoder, decoder_file, run, target, capsys):
    residuals = decoder(run, target).get(Residuals).residuals
    stacked = [r for r in residuals if r.made.layers is not None]
    assert {r.made.layers for r in stacked} == {LAYERS}
    elements = Counter(prod(r.buffer.shape.dimensions) for r in stacked)
    assert elements == saved_by_jax(decoder_file, run, capsys)


@pytest.mark.parametrize(
    ("run", "widths"),
    [("full", WIDTH), ("names", WIDTH + WIDTH + HIDDEN)],  # each block's input, and the names
)
def test_bytes_a_layer_are_tokens_by_widths(decoder, run, widths):
    residuals = decoder(run, "cpu").get(Residuals).residuals
    stacked = sum(r.buffer.size for r in residuals if r.made.layers)
    assert stacked == LAYERS * TOKENS * widths * 4


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_a_saved_name_is_found_in_its_buffer(decoder, target):
    named = decoder("names", target).get(NamedResiduals)
    assert [p.words for p in named.policies] == ["save_only_these_names(attn_out, ffn_in)"]
    found = {value.point.name: value for value in named.values}
    assert {name: len(value.residuals) for name, value in found.items()} == {
        "attn_out": 1,
        "ffn_in": 1,
        "ffn_out": 0,
    }
    for name, width in (("attn_out", WIDTH), ("ffn_in", HIDDEN)):
        (residual,) = found[name].residuals
        assert prod(residual.buffer.shape.dimensions) == LAYERS * TOKENS * width
        assert found[name].point.crossing is Crossing.KEPT
        assert found[name].values == LAYERS
        if target != "v5e":  # whose tiles pad, and which may keep a narrower copy
            assert found[name].bytes == LAYERS * TOKENS * width * 4
    assert found["ffn_out"].recomputed
    # As the optimized module has it too.
    assert [name for name, value in found.items() if value.rebuilt] == ["ffn_out"]
    assert named.ambiguous == ()
    # The input of each block has no name.
    assert any(r.made.layers == LAYERS for r in named.unnamed)


def test_a_stack_that_is_cast_after_the_loop_is_still_the_loops(decoder):
    # A CPU multiplies bfloat16 as float32, and some versions of XLA cast the whole stack.
    session = decoder("narrow", "cpu")
    stacked = [r for r in session.get(Residuals).residuals if r.made.layers]
    assert len(stacked) == 3
    assert {r.made.layers for r in stacked} == {LAYERS}
    named = session.get(NamedResiduals)
    assert {value.point.dtype for value in named.values} == {"bf16"}
    arrays = {value.point.name: len(value.residuals) for value in named.values}
    assert arrays == {"attn_out": 1, "ffn_in": 1, "ffn_out": 0}


def test_what_nothing_recomputes_is_kept_under_its_name_without_a_policy(decoder):
    named = decoder("none", "h100").get(NamedResiduals)
    arrays = {value.point.name: len(value.residuals) for value in named.values}
    # The derivative of tanh needs its result and not what was named.
    assert arrays == {"attn_out": 1, "ffn_in": 1, "ffn_out": 0}
    assert not any(value.recomputed for value in named.values)
    assert named.policies == ()


def test_names_that_keep_nothing_are_listed(decoder):
    named = decoder("full", "cpu").get(NamedResiduals)
    assert [value.point.name for value in named.values] == ["attn_out", "ffn_in", "ffn_out"]
    assert all(not value.residuals and value.recomputed for value in named.values)


def test_casts_of_weights_are_no_activations(decoder):
    residuals = decoder("names", "v5e").get(Residuals).residuals
    paths = {r.made.argument.op_name for r in residuals if r.made.argument is not None}
    # A TPU multiplies in bfloat16; it casts each stack of weights before the loops.
    assert paths <= {f"params['{name}']" for name in ("wq", "wo", "up", "down")}
    assert paths


def point(name, line, primitive, dtype="f32"):
    from hloscope.ir.named_points import Maker, NamedPoint

    return NamedPoint(
        name,
        dtype,
        (8, 16),
        "jvp(f)",
        "model.py",
        line,
        Maker(primitive, "jvp(f)", "model.py", line),
        (),
        1,
        Crossing.KEPT,
        0,
    )


ONE = """
HloModule m, is_scheduled=true
ENTRY e {
  x = f32[8,16] parameter(0)
  h = f32[8,16] tanh(x),
    metadata={op_name="jit(step)/jvp(f)/tanh" source_file="model.py" source_line=3}
  b = f32[8,16] custom-call(h), custom_call_target="b",
    metadata={op_name="jit(step)/transpose(jvp(f))/mul"}
  ROOT r = f32[8,16] custom-call(b), custom_call_target="r", metadata={op_name="jit(step)/mul"}
}
"""


@pytest.mark.parametrize(
    ("points", "named", "ambiguous"),
    [
        ((point("a", 3, "tanh"),), ["a"], []),
        ((point("a", 3, "sin"),), [], []),  # another value of the line
        ((point("a", 4, "tanh"),), [], []),
        ((point("a", 3, "tanh"), point("b", 3, "tanh")), [], [("a", "b")]),
        ((point("a", 3, "tanh"), point("b", 3, "tanh", "bf16")), ["a"], []),
    ],
)
def test_a_name_needs_line_primitive_and_shape(session_of, points, named, ambiguous):
    from hloscope.ir.named_points import NamedPoints

    found = session_of(ONE, NamedPoints(points)).get(NamedResiduals)
    assert [v.point.name for v in found.values if v.residuals] == named
    assert [names for _, names in found.ambiguous] == ambiguous
    assert len(found.unnamed) == 1 - len(named) - len(ambiguous)


JOINED = """
HloModule m, is_scheduled=true
ENTRY e {
  w = f32[2,16] parameter(0)
  a = f32[1,16] slice(w), slice={[0:1], [0:16]}
  b = f32[1,16] slice(w), slice={[1:2], [0:16]}
  j = f32[2,16] custom-call(a, b), custom_call_target="TARGET"
  c = bf16[2,16] convert(j), metadata={op_name="jit(step)/jvp(f)/convert"}
  ROOT g = bf16[2,16] custom-call(c), custom_call_target="g",
    metadata={op_name="jit(step)/transpose(jvp(f))/mul"}
}
"""


@pytest.mark.parametrize(("target", "argument"), [("ConcatBitcast", "w"), ("kernel", None)])
def test_an_argument_that_a_tpu_fetches_in_parts_is_still_one(session_of, target, argument):
    (residual,) = session_of(JOINED.replace("TARGET", target)).get(Residuals).residuals
    found = residual.made.argument
    assert (found.name if found is not None else None) == argument
