import pytest

from hloscope.pipeline.findings import Severity, Unit
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import RULES, Limits, call
from hloscope.pipeline.session import Session

RAGGED = """
def f(x, w, sizes):
    return jax.lax.ragged_dot(x, w, sizes)

def loss(x, w, sizes):
    return (f(x, w, sizes).astype(jnp.float32) ** 2).sum()

step = Step({what}, (shape(1024, 512, dtype="bfloat16"), shape(8, 512, 512, dtype="bfloat16"),
                     shape(8, dtype="int32")))
"""
GATHERED = """
def f(x, w, routing):
    return jnp.einsum("ecd,edf->ecf", x[routing], w)

step = Step(f, (shape(1024, 512), shape(8, 512, 512), shape(8, 128, dtype="int32")))
"""
CAUSAL = """
def f(x, w):
    scores = jnp.einsum("btd,bsd->bts", x, x)
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bts,bsd->btd", jnp.where(seen, scores, 0), x) @ w

step = Step(f, (shape(4, 256, 128), shape(128, 128)))
"""
EACH_EXPERT = """
def f(x, w, weights):
    return jnp.einsum("te,td,edf->tf", weights, x, w)

step = Step(f, (shape(512, 256), shape(8, 256, 256), shape(512, 8)))
"""
# Two of eight experts weigh what comes out; all run.
CHOSEN = """
def f(x, up, down, router):
    weights, choice = jax.lax.top_k(jax.nn.softmax(x @ router), 2)
    taken = jnp.einsum("tk,tke->te", weights, jax.nn.one_hot(choice, 8))
    rows = jnp.broadcast_to(x, (8, *x.shape))
    hidden = jax.nn.silu(jnp.einsum("etd,edf->etf", rows, up))
    return jnp.einsum("etd,te->td", jnp.einsum("etf,efd->etd", hidden, down), taken)

def loss(*operands):
    return (f(*operands) ** 2).sum()

step = Step({what}, (shape(512, 128), shape(8, 128, 256), shape(8, 256, 128), shape(128, 8)))
"""
USEFUL = 2 * 1024 * 512 * 512


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_ragged_dot_that_runs_dense_is_found_with_what_it_multiplies_for_nothing(
    found_in, target
):
    (finding,) = found_in("HS502", RAGGED.format(what="f"), target)
    assert finding.cost.value == 7 * USEFUL
    assert finding.cost.unit is Unit.FLOPS
    share, ratio, groups = (quantity.value for quantity in finding.evidence[1:])
    assert (share, ratio, groups) == (pytest.approx(7 / 8), 8, 8)
    assert (finding.severity, finding.site.file) == (Severity.ERROR, "train.py")


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_its_gradients_are_dense_too(found_in, target):
    code = RAGGED.format(what="jax.grad(loss, argnums=(0, 1))")
    found = found_in("HS502", code, target)
    assert sum(finding.cost.value for finding in found) == 3 * 7 * USEFUL


@pytest.mark.parametrize(
    ("what", "products", "target"),
    [
        ("f", 2, "cpu"),
        ("jax.grad(loss, (0, 1, 2))", 6, "cpu"),
        ("jax.grad(loss, (0, 1, 2))", 6, "h100"),
        ("jax.grad(loss, (0, 1, 2))", 6, "v5e"),
    ],
)
def test_experts_that_all_run_on_what_few_are_chosen_for_are_found(
    found_in, what, products, target
):
    found = found_in("HS502", CHOSEN.format(what=what), target)
    each = 2 * 512 * 128 * 256 * (8 - 2)
    assert sum(finding.cost.value for finding in found) == products * each
    assert all("a row chose 2 of 8" in finding.message for finding in found)
    assert [q.value for q in found[0].evidence[2:]] == [4, 8, 2]


def test_on_a_tpu_the_forward_product_is_grouped(found_in):
    assert found_in("HS502", RAGGED.format(what="f"), "v5e") == ()


@pytest.mark.parametrize("target", ["cpu", "h100"])
@pytest.mark.parametrize("code", [GATHERED, CAUSAL, EACH_EXPERT])
def test_products_that_mask_no_copies_are_left_alone(found_in, code, target):
    assert found_in("HS502", code, target) == ()


def test_what_is_below_the_limit_is_left_alone(found_in):
    code = RAGGED.format(what="f")
    assert found_in("HS502", code, "cpu", Limits(product_flops_share=0.9)) == ()


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("gpu_ragged_nt", 8),
        ("cpu_ragged", 4),
        ("gpu_moe_dense", None),  # every expert on every token is what it asks for
        ("tpu_ragged", None),
        ("tpu_pallas_gmm", None),
    ],
)
def test_recorded_programs(fixtures_dir, name, groups):
    import hloscope

    load_passes()
    rule = RULES["HS502"]
    file = fixtures_dir / "compiled" / "today" / f"{name}.hlo"
    session = Session(hloscope.load(str(file)))
    found = call(rule, session.arguments(rule.needs))
    assert [finding.evidence[-1].value for finding in found] == ([groups] if groups else [])
