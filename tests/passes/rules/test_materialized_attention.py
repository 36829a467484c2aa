import textwrap

import pytest

from hloscope.errors import HloscopeError
from hloscope.pipeline.findings import Severity, Unit
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import RULES, Limits, call
from hloscope.pipeline.session import Session

XLA = """
def attend(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, implementation="xla", is_causal=True)

q = shape(2, {length}, 4, 64, dtype="bfloat16")
step = Step(attend, (q, q, q))
"""
EINSUM = """
def attend(q, k, v):
    scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32) / 8
    weights = jax.nn.softmax(scores).astype(q.dtype)
    return jnp.einsum("bhts,bshd->bthd", weights, v)

def loss(q, k, v):
    return (attend(q, k, v).astype(jnp.float32) ** 2).mean()

q = shape({batch}, {length}, 4, 64, dtype="bfloat16")
step = Step({what}, (q, q, q))
"""
TRAINED_SCAN = """
def layer(x, w):
    q, k, v = jnp.einsum("btd,dchk->cbthk", x, w)
    out = jax.nn.dot_product_attention(q, k, v, implementation="xla")
    return x + out.reshape(x.shape), None

def loss(ws, x):
    return (jax.lax.scan(layer, x, ws)[0].astype(jnp.float32) ** 2).sum()

step = Step(jax.grad(loss), (shape(4, 256, 3, 4, 64, dtype="bfloat16"),
                             shape(2, 512, 256, dtype="bfloat16")))
"""
HEAD = """
def loss(x, w, y):
    logits = jnp.einsum("ebd,edv->ebv", x, w).astype(jnp.float32)
    return -(jax.nn.log_softmax(logits) * y).sum(-1).mean()

step = Step(jax.grad(loss, argnums=(0, 1)), (
    shape(4, 512, 256, dtype="bfloat16"), shape(4, 256, 1024, dtype="bfloat16"),
    shape(4, 512, 1024)))
"""
GRADIENT = "jax.grad(loss, argnums=(0, 1, 2))"
BACKWARD = """
def attend(q, k, v):
    x = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32)
    return jnp.einsum("bhts,bshd->bthd", (NORMAL).astype(q.dtype), v)

q = shape(2, 512, 4, 64, dtype="bfloat16")
pull = jax.eval_shape(lambda *x: jax.vjp(attend, *x)[1], q, q, q)
step = Step(lambda pull, g: pull(g), (pull, q))
"""
GATED = """
def f(x, up, down):
    return jnp.einsum("ebf,efd->ebd", jax.nn.silu(jnp.einsum("ebd,edf->ebf", x, up)), down)

step = Step(f, (shape(4, 512, 256), shape(4, 256, 1024), shape(4, 1024, 256)))
"""


def test_scores_are_found_with_what_they_move(found_in):
    (finding,) = found_in("HS501", XLA.format(length=512), "h100")
    scores = 8 * 512 * 512
    # Float32 written and read, probabilities in bfloat16 written and read.
    assert finding.cost.value == 2 * 4 * scores + 2 * 2 * scores
    assert finding.cost.unit is Unit.BYTES
    # Beside them q, k, v and the result move, and copies of some of them: 6 MiB in all.
    assert finding.evidence[1].value == pytest.approx(24 / 30)
    assert finding.severity is Severity.ERROR
    assert (finding.site.file, finding.site.line is not None) == ("train.py", True)
    assert "8 heads (times batch) of 512 keys, 512 queries to each" in finding.notes[0]
    assert 'implementation="cudnn"' in finding.fix


def test_on_a_cpu_which_has_no_fused_attention_it_is_a_note(found_in):
    (finding,) = found_in("HS501", XLA.format(length=512), "cpu")
    assert finding.severity is Severity.NOTE
    assert any("no fused attention for CPUs" in note for note in finding.notes)


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_scan_over_layers_weighs_with_its_length_and_what_it_saves(found_in, target):
    (finding,) = found_in("HS501", TRAINED_SCAN, target)
    moved = {quantity.name: quantity.value for quantity in finding.evidence}
    scores = 8 * 512 * 512
    # Of each of four layers at least one array is saved, and never more than two in float32.
    assert 4 * 2 * scores <= moved["saved for the backward pass"] <= 4 * 2 * 4 * scores
    assert moved["backward"] >= 4 * 5 * 2 * scores
    assert moved["score bytes moved"] == moved["forward"] + moved["backward"]
    assert 0 < moved["of the peak"] < 1


def test_scores_that_a_tpu_writes_to_memory_are_found(found_in):
    code = EINSUM.format(batch=8, length=2048, what=GRADIENT)
    (finding,) = found_in("HS501", code, "v5e")
    assert finding.evidence[1].value > 0.8
    assert "Pallas" in finding.fix


def test_scores_that_stay_in_a_tpus_vector_memory_are_left_alone(found_in):
    assert found_in("HS501", XLA.format(length=512), "v5e") == ()


def test_einsum_and_softmax_are_attention_too(found_in):
    (finding,) = found_in("HS501", EINSUM.format(batch=2, length=512, what="attend"), "h100")
    assert finding.evidence[1].value > 0.5


def test_attention_that_xla_puts_into_one_fusion_is_left_alone(found_in):
    # XLA:CPU hands both products and the softmax between them to its library as one.
    assert found_in("HS501", EINSUM.format(batch=2, length=512, what="attend"), "cpu") == ()


def test_products_that_xla_pads_to_tiles_are_attention_too(found_in):
    code = EINSUM.format(batch=2, length=531, what=GRADIENT)
    (finding,) = found_in("HS501", code, "h100", xla_gpu_enable_triton_gemm=False)
    moved = {quantity.name: quantity.value for quantity in finding.evidence}
    # Forward, float32 scores are written and read, as are the probabilities in bfloat16;
    # of their gradient at least the same, and the probabilities once more.
    scores = 8 * 531 * 531
    assert moved["forward"] >= (2 * 4 + 2 * 2) * scores
    assert moved["backward"] >= 5 * 2 * scores
    assert "8 heads (times batch) of 531 keys, 531 queries" in finding.notes[0]
    assert moved["share of memory traffic"] > 0.5


def test_short_sequences_are_left_alone(found_in):
    code = XLA.format(length=256)
    assert found_in("HS501", code, "h100") == ()
    assert len(found_in("HS501", code, "h100", Limits(attention_keys=256))) == 1


def test_what_is_below_the_limit_is_left_alone(found_in):
    assert found_in("HS501", XLA.format(length=512), "h100", Limits(traffic_share=0.9)) == ()


@pytest.mark.parametrize("target", ["cpu", "h100"])
@pytest.mark.parametrize("code", [HEAD, GATED])
def test_classifiers_and_gated_layers_are_no_attention(found_in, code, target):
    assert found_in("HS501", code, target) == ()


def test_cudnns_attention_is_left_alone_forward_and_backward(found_in):
    code = EINSUM.format(batch=2, length=512, what=GRADIENT)
    kernel = """
    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, implementation="cudnn", is_causal=True)
    """
    try:
        found = found_in("HS501", _with(code, kernel), "h100")
    except HloscopeError as error:
        if "cuDNN not found" not in str(error):
            raise
        pytest.skip("JAX wants cuDNN's library: hloscope targets install h100 --with-cudnn")
    assert found == ()


def test_a_pallas_kernel_is_left_alone_forward_and_backward(found_in):
    kernel = """
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
    def attend(q, k, v):
        return flash_attention(*(x.swapaxes(1, 2) for x in (q, k, v)))
    """
    code = EINSUM.format(batch=8, length=1024, what=GRADIENT)
    assert found_in("HS501", _with(code, kernel), "v5e") == ()


def _with(code, kernel):
    return code.replace("\ndef loss", textwrap.dedent(kernel) + "\ndef loss")


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_the_gradient_alone_is_attention_too(found_in, target):
    (finding,) = found_in("HS501", BACKWARD.replace("NORMAL", "jax.nn.softmax(x)"), target)
    moved = {quantity.name: quantity.value for quantity in finding.evidence}
    assert "forward" not in moved
    # Written and read: the gradients of probabilities and scores; read: probabilities.
    assert moved["backward"] >= 8 * 512 * 512 * (2 + 2 + 2 + 2 + 2)
    assert "the gradient alone is in this program" in finding.notes


@pytest.mark.parametrize(
    "normal",
    [
        "x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True))",
        "(x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True))",
    ],
)
def test_the_gradient_of_a_norm_is_none(found_in, normal):
    assert found_in("HS501", BACKWARD.replace("NORMAL", normal), "cpu") == ()


def fixture_findings(file):
    import hloscope

    load_passes()
    rule = RULES["HS501"]
    session = Session(hloscope.load(str(file)))
    return call(rule, session.arguments(rule.needs))


@pytest.mark.parametrize(
    "name",
    ["gpu_attn_fwd", "gpu_attn_grad", "gpu_attn_bias", "tpu_pallas_flash", "tpu_pallas_splash"],
)
def test_fused_attention_is_left_alone(fixtures_dir, name):
    assert fixture_findings(fixtures_dir / "compiled" / "today" / f"{name}.hlo") == ()
