import pytest

from hloscope.pipeline.findings import Severity, Unit
from hloscope.pipeline.rules import Limits

# 8x8 products: eight in bfloat16 beside float32 ones.
NARROW = "x = bf16[8,8] parameter(0)\n" + "\n".join(
    f"n{k} = bf16[8,8] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    for k in range(8)
)


def program(*wide: str, narrow: str = NARROW) -> str:
    dots = "\n".join(
        f"w{k} = {dtype}[8,8] dot(y{dtype}, y{dtype}), lhs_contracting_dims={{1}}, "
        f'rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/dot_general" '
        f'source_file="model.py" source_line={line}}}'
        for k, (dtype, line) in enumerate(w.split(":") for w in wide)
    )
    return f"""
    HloModule m
    ENTRY e {{
      {narrow}
      yf32 = f32[8,8] parameter(1)
      yf64 = f64[8,8] parameter(2)
      {dots}
      ROOT z = f32[] constant(0)
    }}
    """


def test_float32_products_are_found_by_line_with_their_share(findings_of):
    (finding,) = findings_of("HS401", program("f32:10", "f32:10"))
    assert (finding.site.file, finding.site.line) == ("model.py", 10)
    assert finding.message.startswith("2 products in float32")
    flops, share, _ = finding.evidence
    assert (flops.value, flops.unit) == (2 * 2 * 8**3, Unit.FLOPS)
    assert share.value == pytest.approx(2 / 10)
    assert finding.severity is Severity.WARNING


def test_two_lines_are_two_findings_and_float64_is_named(findings_of):
    found = findings_of("HS401", program("f32:10", "f64:20"))
    assert [f.site.line for f in found] == [10, 20]
    assert "float64" in found[1].message


def test_a_program_that_is_float32_throughout_is_left_alone(findings_of):
    assert findings_of("HS401", program("f32:10", narrow="x = bf16[8,8] parameter(0)")) == ()


def test_a_program_that_is_bfloat16_throughout_is_left_alone(findings_of):
    assert findings_of("HS401", program()) == ()


def test_what_is_below_the_limit_is_left_alone(findings_of):
    text = program("f32:10")  # one of nine
    assert findings_of("HS401", text, Limits(product_flops_share=0.2)) == ()


@pytest.mark.parametrize(
    ("wide", "severity"), [(1, Severity.WARNING), (8, Severity.ERROR), (20, Severity.ERROR)]
)
def test_severity_follows_the_share(findings_of, wide, severity):
    (finding,) = findings_of("HS401", program(*["f32:10"] * wide))
    assert finding.severity is severity


def test_a_loop_weighs_with_its_trip_count_and_is_named(findings_of):
    text = """
    HloModule m
    cond { p = (f32[8,8]) parameter(0)  ROOT go = pred[] constant(true) }
    body {
      p = (f32[8,8]) parameter(0)
      w = f32[8,8] get-tuple-element(p), index=0
      d = f32[8,8] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT t = (f32[8,8]) tuple(d)
    }
    ENTRY e {
      x = bf16[16,16] parameter(0)
      n = bf16[16,16] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      y = f32[8,8] parameter(1)
      init = (f32[8,8]) tuple(y)
      ROOT l = (f32[8,8]) while(init), condition=cond, body=body,
        backend_config={"known_trip_count":{"n":"8"}}
    }
    """
    (finding,) = findings_of("HS401", text)
    # 8 times 8^3 against 16^3.
    assert finding.evidence[1].value == pytest.approx(8 * 8**3 / (8 * 8**3 + 16**3))
    assert "reached through l x8" in finding.notes


def compiled(step, *arguments):
    jax = pytest.importorskip("jax")
    return jax.jit(step).lower(*arguments).compile().as_text()


def mlp(head_dtype):
    import jax
    import jax.numpy as jnp

    def loss(params, x):
        h = x.astype(jnp.bfloat16)
        for w in params["layers"]:
            h = jax.nn.gelu(h @ w.astype(jnp.bfloat16))
        head = params["head"].astype(head_dtype)
        logits = jnp.einsum("bd,dv->bv", h.astype(head_dtype), head)
        return jnp.mean(logits.astype(jnp.float32) ** 2)

    params = {
        "layers": [jax.ShapeDtypeStruct((256, 256), "float32")] * 4,
        "head": jax.ShapeDtypeStruct((256, 512), "float32"),
    }
    return jax.value_and_grad(loss), params, jax.ShapeDtypeStruct((64, 256), "float32")


def test_a_float32_head_on_a_bfloat16_model_is_found_on_its_line(findings_of):
    pytest.importorskip("jax")
    (finding,) = findings_of("HS401", compiled(*mlp("float32")))
    # Three products of 256x512 against eleven of 256x256 (the first layer's input
    # needs no gradient).
    assert finding.evidence[1].value == pytest.approx(3 * 2 / (3 * 2 + 11))
    assert finding.site.file.endswith("test_float32_product.py")


def test_a_bfloat16_model_compiled_for_a_cpu_is_not_taken_for_a_float32_one(findings_of):
    pytest.importorskip("jax")
    assert findings_of("HS401", compiled(*mlp("bfloat16"))) == ()


def test_a_float32_model_is_not_scolded_for_what_it_is(findings_of):
    jax = pytest.importorskip("jax")
    w = jax.ShapeDtypeStruct((256, 256), "float32")
    assert findings_of("HS401", compiled(lambda a, b: a @ b, w, w)) == ()


HEAD = """
def f(params, x):
    h = x.astype(jnp.bfloat16)
    for w in params["layers"]:
        h = jnp.tanh(h @ w.astype(jnp.bfloat16))
    return h.astype({dtype}) @ params["head"].astype({dtype})

step = Step(f, ({{"layers": [shape(256, 256)] * 4, "head": shape(256, 256)}}, shape(64, 256)))
"""


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_float32_head_is_found_on_its_line(found_in, target):
    (finding,) = found_in("HS401", HEAD.format(dtype="jnp.float32"), target)
    assert finding.evidence[1].value == pytest.approx(1 / 5)
    assert (finding.site.file, finding.severity) == ("train.py", Severity.WARNING)
    assert any("nothing is said of rounding" in note for note in finding.notes)


def test_a_tpu_that_rounds_the_head_to_bfloat16_leaves_nothing_to_find(found_in):
    code = HEAD.format(dtype="jnp.float32")
    assert found_in("HS401", code, "v5e") == ()
    # Asked for, the precision stays.
    asked = code.replace(
        "    return", '    jax.config.update("jax_default_matmul_precision", "highest")\n    return'
    )
    (finding,) = found_in("HS401", asked, "v5e")
    assert any("full float32 precision" in note for note in finding.notes)


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_a_bfloat16_head_is_left_alone(found_in, target):
    assert found_in("HS401", HEAD.format(dtype="jnp.bfloat16"), target) == ()


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_norms_softmax_and_loss_in_float32_are_no_products(found_in, target):
    code = """
    def f(w, x):
        h = x.astype(jnp.float32)
        h = ((h - h.mean(-1, keepdims=True)) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-6))
        h = h.astype(jnp.bfloat16) @ w
        return jax.nn.log_softmax((h @ w).astype(jnp.float32))

    step = Step(f, (shape(256, 256, dtype="bfloat16"), shape(64, 256, dtype="bfloat16")))
    """
    assert found_in("HS401", code, target, Limits(product_flops_share=0.0)) == ()


@pytest.mark.parametrize(
    ("preset", "note"),
    [
        ("TF32_TF32_F32", "its algorithm rounds to TF32"),
        ("BF16_BF16_F32_X3", "its algorithm rounds to bf16 x3"),
        ("BF16_BF16_F32", None),  # that is a product in bfloat16
    ],
)
def test_what_the_algorithm_rounds_to_is_said(found_in, preset, note):
    code = f"""
    def f(x, w, b):
        for _ in range(3):
            b = jnp.tanh(b @ b)
        return b, jax.lax.dot(x, w, precision=jax.lax.DotAlgorithmPreset.{preset},
                              preferred_element_type=jnp.float32)

    square = (256, 256)
    step = Step(f, (shape(*square), shape(*square), shape(*square, dtype="bfloat16")))
    """
    found = found_in("HS401", code, "h100")
    assert len(found) == (note is not None)
    for finding in found:
        assert any(text.startswith(note) for text in finding.notes)


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_number_that_widens_what_a_product_multiplies_is_named_with_its_line(found_in, target):
    code = """
    def f(x, w):
        logits = (x @ w) / np.float32(22.6)
        weights = jax.nn.softmax(logits)
        return weights @ w

    square = shape(512, 512, dtype="bfloat16")
    step = Step(f, (square, square))
    """
    (finding,) = found_in("HS401", code, target)
    (note,) = [note for note in finding.notes if note.startswith("on the way to it")]
    assert "bf16 became f32 at train.py:" in note
    assert note.endswith("where it meets a number 22.6")
    named = int(note.split("train.py:")[1].split(",")[0])
    assert named == finding.site.line - 2


def test_a_product_behind_another_one_does_not_name_its_promotions(found_in):
    code = """
    def f(x, w, v):
        h = ((x @ w) * np.float32(3)) @ v
        h = h @ v
        return h.astype(jnp.bfloat16) @ w

    narrow, wide = shape(256, 256, dtype="bfloat16"), shape(256, 256)
    step = Step(f, (narrow, narrow, wide))
    """
    found = found_in("HS401", code)
    named = [any("on the way" in note for note in f.notes) for f in found]
    assert named == [True, False]
