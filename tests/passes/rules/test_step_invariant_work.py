"""Work that depends on frozen arguments and constants only."""

import pytest

from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

ENCODER = """
def encode(encoder, text):
    h = text
    for w in encoder:
        h = jnp.tanh(h @ w)
    return h

def run(state, batch, encoder, null_text):
    null = encode(encoder, null_text)
    def loss(w):
        return jnp.mean((jnp.tanh(batch @ w) @ null.T) ** 2)
    new = {{"w": state["w"] - 0.1 * jax.grad(loss)(state["w"])}}
    return new, {result}

step = Step(
    run,
    ({{"w": shape(128, 128)}}, shape(64, 128), [shape(128, 128)] * 3, shape(32, 128)),
    donate={donate},
    roles={{"encoder": "{encoder}", "null_text": "frozen"}},
)
"""
FROZEN = ENCODER.format(encoder="frozen", donate="(0,)", result="0.0")
TRAINED = ENCODER.format(
    encoder="state", donate="(0, 2)", result="[w + null.sum() for w in encoder]"
)


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_an_encoder_that_runs_on_a_frozen_embedding_is_found(found_in, target):
    (finding,) = found_in("HS504", FROZEN, target)
    assert finding.message == "3 products come out the same in every step"
    assert finding.cost.value == 3 * 2 * 32 * 128 * 128
    assert (finding.site.file, finding.site.line) == ("train.py", 12)
    names = finding.notes[0].removeprefix("made from ").split(", ")
    assert sorted(names) == ["encoder[0]", "encoder[1]", "encoder[2]", "null_text"]
    _, share, launches, moved = finding.evidence
    assert share.value == pytest.approx(3 * 32 / (3 * 32 + 2 * 64 + 32), rel=0.2)
    assert launches.value > 0
    assert moved.value > 0 or target == "v5e"  # a TPU keeps arrays as small as these on the chip
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_an_encoder_whose_weights_are_trained_is_left_alone(found_in, target):
    assert found_in("HS504", TRAINED, target) == ()


def test_a_step_without_anything_frozen_is_not_looked_at(found_in):
    code = """
    def run(state, batch):
        return state + batch.T @ batch

    step = Step(run, (shape(64, 64), shape(64, 64)), donate=(0,))
    """
    with pytest.raises(Unavailable, match="no argument is known to be frozen"):
        found_in("HS504", code)


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_an_array_that_the_step_closes_over_is_frozen_too_and_named(found_in, target):
    code = """
    DOWN = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)

    def run(state, batch, frozen_up):
        return state + (batch @ jnp.tanh(jnp.asarray(DOWN) @ frozen_up)).sum(0)

    step = Step(run, (shape(512), shape(64, 512), shape(512, 512)), donate=(0,))
    """
    (finding,) = found_in("HS504", code, target)
    assert finding.cost.value == 2 * 512**3
    assert finding.notes[0] in ("made from DOWN, frozen_up", "made from frozen_up, DOWN")


def test_tables_of_positions_and_masks_are_no_products(found_in):
    code = """
    def run(state, batch, frozen_scale):
        angles = jnp.arange(64)[:, None] * frozen_scale[None, :]
        turned = batch * jnp.cos(angles) + batch[:, ::-1] * jnp.sin(angles)
        scores = jnp.where(jnp.tril(jnp.ones((64, 64), bool)), turned @ turned.T, -1e9)
        return state + (jax.nn.softmax(scores) @ turned).sum()

    step = Step(run, (shape(), shape(64, 32), shape(32)), donate=(0,))
    """
    assert found_in("HS504", code) == ()


# A loop that multiplies a carried value with a frozen one.
LOOP = """
HloModule m
cond {{
  p = (s32[], f32[64,64], f32[64,64], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=3
  ROOT go = pred[] compare(i, n), direction=LT
}}
body {{
  p = (s32[], f32[64,64], f32[64,64], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[64,64] get-tuple-element(p), index=1
  w = f32[64,64] get-tuple-element(p), index=2
  n = s32[] get-tuple-element(p), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  d = f32[64,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = (s32[], f32[64,64], f32[64,64], s32[]) tuple(next, d, w, n)
}}
ENTRY e {{
  x = f32[64,64] parameter(0), metadata={{op_name="{x}"}}
  w = f32[64,64] parameter(1), metadata={{op_name="{w}"}}
  m = s32[] parameter(2), metadata={{op_name="batch"}}
  zero = s32[] constant(0)
  eight = s32[] constant(8)
  init = (s32[], f32[64,64], f32[64,64], s32[]) tuple(zero, x, w, {n})
  l = (s32[], f32[64,64], f32[64,64], s32[]) while(init), condition=cond, body=body
  r = f32[64,64] get-tuple-element(l), index={result}
  ROOT d = f32[64,64] dot(r, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


def loop(x="frozen.x", w="frozen.w", n="eight", result=1):
    return LOOP.format(x=x, w=w, n=n, result=result)


def found(findings_of, text):
    return [(f.message, f.cost.value) for f in findings_of("HS504", text)]


def test_a_loop_over_frozen_values_is_the_same_in_every_step(findings_of):
    everything = [("2 products come out the same in every step", 9 * 2 * 64**3)]
    assert found(findings_of, loop()) == everything


def test_what_a_loop_makes_of_state_is_not(findings_of):
    assert found(findings_of, loop(x="state.x")) == []
    assert found(findings_of, loop(w="state.w")) == []


def test_what_a_loop_hands_on_is_the_same_whatever_the_loop_does(findings_of):
    # Only the last product: of the frozen matrix with itself.
    text = loop(x="state.x", result=2)
    assert found(findings_of, text) == [("a product comes out the same in every step", 2 * 64**3)]


def test_how_often_a_loop_runs_decides_on_its_result(findings_of):
    """The body's product makes the same of each run; the result depends on their number."""
    (finding,) = findings_of("HS504", loop(n="m"))
    assert finding.message == "a product comes out the same in every step"
    assert finding.site.computation == "body"


@pytest.mark.parametrize(("chosen", "products"), [("frozen.p", 1), ("batch.p", 0)])
def test_a_branch_depends_on_what_chooses_it(findings_of, chosen, products):
    text = f"""
    HloModule m
    one {{ ROOT a = f32[64,64] parameter(0) }}
    two {{ b = f32[64,64] parameter(0)  ROOT n = f32[64,64] negate(b) }}
    ENTRY e {{
      p = pred[] parameter(0), metadata={{op_name="{chosen}"}}
      w = f32[64,64] parameter(1), metadata={{op_name="frozen.w"}}
      c = f32[64,64] conditional(p, w, w), true_computation=one, false_computation=two
      ROOT d = f32[64,64] dot(c, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    }}
    """
    assert len(findings_of("HS504", text)) == products


@pytest.mark.parametrize(
    "made",
    [
        'r = f32[64,64] custom-call(w), custom_call_target="xla_ffi_python_cpu_callback"',
        'r = f32[64,64] custom-call(w), custom_call_target="k", custom_call_has_side_effect=true',
        "r = f32[64,64] rng(z, z), distribution=rng_uniform",
    ],
)
def test_what_comes_from_outside_or_by_chance_may_change(findings_of, made):
    text = f"""
    HloModule m
    ENTRY e {{
      w = f32[64,64] parameter(0), metadata={{op_name="frozen.w"}}
      z = f32[] constant(0)
      {made}
      ROOT d = f32[64,64] dot(r, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    }}
    """
    assert findings_of("HS504", text) == ()


def test_products_that_do_not_hang_together_are_findings_of_their_own(findings_of):
    text = """
    HloModule m
    ENTRY e {
      a = f32[64,64] parameter(0), metadata={op_name="frozen.a"}
      b = f32[64,64] parameter(1), metadata={op_name="frozen.b"}
      c = f32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      d = f32[64,64] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT t = (f32[64,64], f32[64,64]) tuple(c, d)
    }
    """
    first, second = findings_of("HS504", text)
    assert {first.notes[0], second.notes[0]} == {"made from frozen.a", "made from frozen.b"}
    assert any("guessed from their names" in note for note in first.notes)
    assert findings_of("HS504", text, Limits(product_flops_share=0.6)) == ()
