"""Products that one step computes more than once."""

import pytest

from hloscope.pipeline.rules import Limits

CONTRASTIVE = """
def run(params, batch):
    image = jnp.tanh(batch["image"] @ params["image"])
    text = jnp.tanh(batch["text"] @ params["text"])
    per_image = image @ text.T
    per_text = {per_text}
    diagonal = jnp.diagonal(jax.nn.log_softmax(per_image))
    return diagonal.mean() + jnp.diagonal(jax.nn.log_softmax(per_text * 2)).mean()

step = Step(run, (
    {{"image": shape(256, 128), "text": shape(192, 128)}},
    {{"image": shape(512, 256), "text": shape(512, 192)}},
))
"""


@pytest.mark.parametrize("target", ["cpu", "v5e"])
def test_one_product_in_two_orders_is_found_with_both_lines(found_in, target):
    (finding,) = found_in("HS505", CONTRASTIVE.format(per_text="text @ image.T"), target)
    assert finding.message == "one product is computed 2 times from the same operands"
    assert finding.cost.value == 2 * 512 * 512 * 128
    lines = {finding.site.line} | {
        int(note.partition("train.py:")[2].partition(" ")[0])
        for note in finding.notes
        if note.startswith("also at")
    }
    assert lines == {12, 13}


def test_two_products_that_a_gpu_compiler_made_one_of_are_found_in_it(found_in):
    """XLA joins what the two multiply ``image`` with: twice the same text."""
    (finding,) = found_in("HS505", CONTRASTIVE.format(per_text="text @ image.T"), "h100")
    assert finding.message == "one product is computed 2 times from the same operands"
    assert finding.cost.value == 2 * 512 * 512 * 128
    assert finding.site.line in (12, 13)
    assert any("joins the same values several times" in note for note in finding.notes)


@pytest.mark.parametrize(
    ("parts", "dims", "spare"),
    [
        ("b, b", "{0}", 8),
        ("b, b, b", "{0}", 16),
        ("b, n", "{0}", 0),
        # The sum over a dimension that is joined is no result of its own.
        ("b, b", "{1}", 0),
    ],
)
def test_only_rows_that_are_joined_more_than_once_repeat_a_result(findings_of, parts, dims, spare):
    count = parts.count(",") + 1
    shape = f"{8 * count},8" if dims == "{0}" else f"8,{8 * count}"
    contracted = 8 if dims == "{0}" else 8 * count
    text = f"""
    HloModule m
    ENTRY e {{
      a = f32[8,{contracted}] parameter(0)
      b = f32[8,8] parameter(1)
      n = f32[8,8] negate(b)
      j = f32[{shape}] concatenate({parts}), dimensions={dims}
      ROOT d = f32[8,{8 * count if dims == "{0}" else 8}] dot(a, j),
        lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
    }}
    """
    assert [f.cost.value for f in findings_of("HS505", text)] == [2 * 8 * 8 * spare] * bool(spare)


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_the_transposition_of_a_product_is_none(found_in, target):
    assert found_in("HS505", CONTRASTIVE.format(per_text="per_image.T"), target) == ()


CHECKPOINTED = """
@jax.checkpoint
def block(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w.T)

def run(params, batch):
    def loss(params):
        x = batch
        for w in params:
            x = block(x, w)
        return jnp.mean(x ** 2)
    return jax.grad(loss)(params)

step = Step(run, ([shape(128, 128)] * 3, shape(64, 128)))
"""


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_what_a_checkpoint_runs_again_is_no_duplicate(found_in, target):
    found = found_in("HS505", CHECKPOINTED, target, Limits(product_flops_share=0.0))
    assert found == ()


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_attention_and_its_gradient_compute_nothing_twice(found_in, target):
    code = """
    def attend(params, x):
        q, k, v = (x @ w for w in params)
        return jax.nn.softmax(q @ k.T) @ v

    def run(params, batch):
        return jax.grad(lambda p: jnp.mean(attend(p, attend(p, batch)) ** 2))(params)

    step = Step(run, ([shape(64, 64)] * 3, shape(128, 64)))
    """
    assert found_in("HS505", code, target, Limits(product_flops_share=0.0)) == ()


def dots(*lines):
    text = "\n".join(lines)
    return f"""
    HloModule m
    f {{ x = f32[8,8] parameter(0)  y = f32[8,8] parameter(1)
      ROOT d = f32[8,8] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}
    ENTRY e {{
      a = f32[8,8] parameter(0)
      b = f32[8,8] parameter(1)
      ab = f32[8,8] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      {text}
      ROOT z = f32[] constant(0)
    }}
    """


DIMS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    "lines",
    [
        [f"d = f32[8,8] dot(a, b), {DIMS}"],
        ["d = f32[8,8] dot(b, a), lhs_contracting_dims={0}, rhs_contracting_dims={1}"],
        ["d = f32[8,8] fusion(a, b), kind=kOutput, calls=f"],
        ["c = f32[8,8] copy(a)", f"d = f32[8,8] dot(c, b), {DIMS}"],
        [
            "t = f32[8,8] transpose(a), dimensions={1,0}",
            "d = f32[8,8] dot(t, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        ],
        [
            # A bitcast to the other order in memory is a transposition.
            "u = f32[8,8]{1,0} copy(a)",
            "t = f32[8,8]{0,1} bitcast(u)",
            "d = f32[8,8] dot(t, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        ],
    ],
)
def test_other_ways_to_write_a_product_are_the_same_product(findings_of, lines):
    (finding,) = findings_of("HS505", dots(*lines))
    assert finding.cost.value == 2 * 8**3


@pytest.mark.parametrize(
    "lines",
    [
        [f"d = f32[8,8] dot(b, a), {DIMS}"],
        ["d = f32[8,8] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}"],
        [f"d = f32[8,8] dot(a, b), {DIMS}, operand_precision={{highest,highest}}"],
        ["n = f32[8,8] negate(a)", f"d = f32[8,8] dot(n, b), {DIMS}"],
        ["c = bf16[8,8] convert(a)", "w = f32[8,8] convert(c)", f"d = f32[8,8] dot(w, b), {DIMS}"],
        [f"d.remat = f32[8,8] dot(a, b), {DIMS}"],
        ["d.remat2 = f32[8,8] fusion(a, b), kind=kOutput, calls=f"],
    ],
)
def test_what_differs_is_left_alone(findings_of, lines):
    assert findings_of("HS505", dots(*lines)) == ()


@pytest.mark.parametrize(("alpha", "products"), [(1, 1), (2, 0)])
def test_library_calls_are_compared_by_their_matrices(findings_of, alpha, products):
    """The second one has the matrices in the other order, and adds a bias."""

    def gemm(name, operands, lhs, rhs, alpha):
        return (
            f"{name} = (f32[8,8], s8[64]) custom-call({operands}), custom_call_target="
            f'"__cublas$lt$matmul", backend_config={{"gemm_backend_config":{{"alpha_real":{alpha},'
            f'"dot_dimension_numbers":{{"lhs_contracting_dimensions":["{lhs}"],'
            f'"rhs_contracting_dimensions":["{rhs}"]}}}}}}'
        )

    text = f"""
    HloModule m
    ENTRY e {{
      a = f32[8,8] parameter(0)
      b = f32[8,8] parameter(1)
      c = f32[8] parameter(2)
      {gemm("one", "a, b", 1, 0, 1)}
      {gemm("two", "b, a, c", 0, 1, alpha)}
      ROOT z = f32[] constant(0)
    }}
    """
    assert len(findings_of("HS505", text)) == products


def test_random_numbers_are_never_the_same(findings_of):
    lines = ["zero = f32[] constant(0)", "one = f32[] constant(1)"]
    for k in range(2):
        lines += [
            f"r{k} = f32[8,8] rng(zero, one), distribution=rng_uniform",
            f"d{k} = f32[8,8] dot(r{k}, b), {DIMS}",
        ]
    assert findings_of("HS505", dots(*lines)) == ()


def test_branches_and_what_surrounds_them_run_apart(findings_of):
    text = f"""
    HloModule m
    yes {{ t = (f32[8,8], f32[8,8]) parameter(0)
      x = f32[8,8] get-tuple-element(t), index=0
      y = f32[8,8] get-tuple-element(t), index=1
      ROOT d = f32[8,8] dot(x, y), {DIMS} }}
    no {{ t = (f32[8,8], f32[8,8]) parameter(0)
      x = f32[8,8] get-tuple-element(t), index=0
      y = f32[8,8] get-tuple-element(t), index=1
      ROOT d = f32[8,8] dot(x, y), {DIMS} }}
    ENTRY e {{
      p = pred[] parameter(0)
      a = f32[8,8] parameter(1)
      b = f32[8,8] parameter(2)
      t = (f32[8,8], f32[8,8]) tuple(a, b)
      ROOT c = f32[8,8] conditional(p, t, t), true_computation=yes, false_computation=no
    }}
    """
    assert findings_of("HS505", text) == ()


LOOP = f"""
HloModule m
cond {{ p = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(8)
  ROOT go = pred[] compare(i, n), direction=LT }}
body {{ p = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,8] get-tuple-element(p), index=1
  w = f32[8,8] get-tuple-element(p), index=2
  d = f32[8,8] dot(x, w), {DIMS}
  again = f32[8,8] dot(OPERANDS), {DIMS}
  s = f32[8,8] subtract(d, again)
  ROOT t = (s32[], f32[8,8], f32[8,8]) tuple(next, s, w) }}
ENTRY e {{
  a = f32[8,8] parameter(0)
  b = f32[8,8] parameter(1)
  before = f32[8,8] dot(a, b), {DIMS}
  zero = s32[] constant(0)
  init = (s32[], f32[8,8], f32[8,8]) tuple(zero, a, b)
  l = (s32[], f32[8,8], f32[8,8]) while(init), condition=cond, body=body
  ROOT r = f32[8,8] get-tuple-element(l), index=1
}}
"""


def test_one_run_of_a_loop_is_compared_with_itself_and_counted_with_its_iterations(findings_of):
    (finding,) = findings_of("HS505", LOOP.replace("OPERANDS", "x, w"))
    assert finding.cost.value == 8 * 2 * 8**3
    assert "reached through l x8" in finding.notes
    assert findings_of("HS505", LOOP.replace("OPERANDS", "w, x")) == ()


def test_shared_computations_and_asynchronous_calls_are_told_apart(findings_of):
    text = f"""
    HloModule m
    f {{ x = f32[8,8] parameter(0)
      ROOT n = f32[8,8] negate(x) }}
    ENTRY e {{
      a = f32[8,8] parameter(0)
      b = f32[8,8] parameter(1)
      s0 = ((f32[8,8]), f32[8,8], u32[]) async-start(a), calls=f
      s1 = ((f32[8,8]), f32[8,8], u32[]) async-start(b), calls=f
      n0 = f32[8,8] async-done(s0)
      n1 = f32[8,8] async-done(s1)
      m0 = f32[8,8] fusion(a), kind=kLoop, calls=f
      m1 = f32[8,8] fusion(b), kind=kLoop, calls=f
      d0 = f32[8,8] dot(n0, a), {DIMS}
      d1 = f32[8,8] dot(n1, a), {DIMS}
      e0 = f32[8,8] dot(m0, a), {DIMS}
      ROOT e1 = f32[8,8] dot(m1, a), {DIMS}
    }}
    """
    assert findings_of("HS505", text) == ()
