import pytest

from hloscope.pipeline.findings import Severity, Unit
from hloscope.pipeline.rules import Limits

ANY_SIZE = Limits(layout_bytes=1)

TRANSPOSED_RESULT = """
def f(x):
    return x.T

step = Step(f, (shape(1024, 512),))
"""
HEADS = """
def f(x, w):
    b, t, d = x.shape
    h = (x @ w).reshape(b, t, 8, d // 8)
    return h.transpose(0, 2, 1, 3)

step = Step(f, (shape(4, 512, 512, dtype="bfloat16"), shape(512, 512, dtype="bfloat16")))
"""
COMPUTES = """
def f(x, y):
    return jnp.tanh(x.T) + y

step = Step(f, (shape(1024, 512), shape(512, 1024)))
"""
COPIES = """
def f(x, y):
    return x, y + 1

step = Step(f, (shape(512, 512), shape(512, 512)))
"""
MLP = """
def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x ** 2).mean()

step = Step(jax.grad(loss), ([shape(256, 256)] * 3, shape(128, 256)))
"""


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_transpose_by_itself_is_found_with_what_it_moves(found_in, target):
    (finding,) = found_in("HS507", TRANSPOSED_RESULT, target)
    assert finding.cost.value == 2 * 1024 * 512 * 4
    assert finding.cost.unit is Unit.BYTES
    assert finding.evidence[1].value == pytest.approx(1)
    assert finding.severity is Severity.ERROR
    assert target == "h100" or finding.site.file == "train.py"  # there the line is dropped


def test_a_split_into_heads_is_found_on_its_line(found_in):
    (finding,) = found_in("HS507", HEADS, "h100")
    assert finding.cost.value == 2 * 4 * 512 * 512 * 2
    assert (finding.site.file, finding.site.line is not None) == ("train.py", True)
    assert any("bf16[2048,512]" in note for note in finding.notes)


def test_a_loop_weighs_with_its_trip_count_and_a_named_transpose_is_the_programs(findings_of):
    text = """
    HloModule m, is_scheduled=true
    cond { p = (f32[64,64]) parameter(0)  ROOT go = pred[] constant(true) }
    body {
      p = (f32[64,64]) parameter(0)
      x = f32[64,64]{1,0} get-tuple-element(p), index=0
      t = f32[64,64]{1,0} transpose(x), dimensions={1,0},
        metadata={op_name="jit(f)/while/body/transpose" source_file="model.py" source_line=3}
      ROOT r = (f32[64,64]) tuple(t)
    }
    ENTRY e {
      x = f32[64,64]{1,0} parameter(0)
      init = (f32[64,64]) tuple(x)
      ROOT l = (f32[64,64]) while(init), condition=cond, body=body,
        backend_config={"known_trip_count":{"n":"6"}}
    }
    """
    (finding,) = findings_of("HS507", text, ANY_SIZE)
    assert finding.cost.value == 6 * 2 * 64 * 64 * 4
    assert any("6 times" in note for note in finding.notes)
    assert "the program transposes here" in finding.notes


@pytest.mark.parametrize("target", ["cpu", "h100"])
@pytest.mark.parametrize("code", [COMPUTES, COPIES])
def test_launches_that_compute_and_plain_copies_are_left_alone(found_in, code, target):
    assert found_in("HS507", code, target) == ()


GROUPED = """
def loss(q, k, v):
    out = jax.nn.dot_product_attention(q, k, v, implementation="xla", is_causal=True)
    return (out.astype(jnp.float32) ** 2).mean()

q, kv = (shape(2, 1024, heads, 64, dtype="bfloat16") for heads in (8, 2))
step = Step(jax.grad(loss, argnums=(0, 1, 2)), (q, kv, kv))
"""


def test_of_attentions_scores_the_fix_is_a_fused_kernel(found_in):
    (finding,) = found_in("HS507", GROUPED, "h100")
    assert "fused kernel" in finding.fix


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_products_take_either_order(found_in, target):
    assert found_in("HS507", MLP, target) == ()


def test_a_few_bytes_are_left_alone_however_large_their_share(findings_of):
    text = """
    HloModule m, is_scheduled=true
    ENTRY e {
      x = f32[64,32]{1,0} parameter(0)
      ROOT c = f32[64,32]{0,1} copy(x)
    }
    """
    assert findings_of("HS507", text) == ()
    assert len(findings_of("HS507", text, ANY_SIZE)) == 1


def test_what_is_below_the_limit_is_left_alone(found_in):
    assert found_in("HS507", HEADS, "h100", Limits(traffic_share=0.9)) == ()


def test_a_copy_into_another_layout_is_found_where_what_reads_it_has_a_line(findings_of):
    text = """
    HloModule m, is_scheduled=true
    ENTRY e {
      x = f32[64,32]{1,0} parameter(0)
      c = f32[64,32]{0,1} copy(x)
      b = f32[32,64]{1,0} bitcast(c)
      ROOT d = f32[32,32]{1,0} dot(b, c), lhs_contracting_dims={1}, rhs_contracting_dims={0},
        metadata={op_name="jit(f)/dot_general" source_file="model.py" source_line=7}
    }
    """
    (finding,) = findings_of("HS507", text, ANY_SIZE)
    assert (finding.site.file, finding.site.line) == ("model.py", 7)
    assert finding.cost.value == 2 * 64 * 32 * 4
    same = text.replace("{0,1} copy", "{1,0} copy")
    assert findings_of("HS507", same, ANY_SIZE) == ()
    # A dimension of one may stand anywhere.
    flat = same.replace("64,32", "64,1").replace("{1,0} copy", "{0,1} copy")
    flat = flat.replace("32,64", "1,64").replace("32,32", "1,1")
    assert findings_of("HS507", flat) == ()
