"""What is computed again, by arithmetic on the shapes of the recorded programs."""

from __future__ import annotations

import pytest

from hloscope.ir import parse_text
from hloscope.ir.jaxpr_count import JaxprCount, JaxprFlops, JaxprSite
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.remat import Remat, region_scope
from hloscope.passes.remat_verdict import RematOutcome, RematVerdict
from hloscope.pipeline.session import Session

SCAN = 2 * 512 * 1024 * 1024  # one product of a layer
LAYERS = 6


@pytest.fixture
def recorded(session_of, fixtures_dir):
    return lambda *names: session_of(fixtures_dir.joinpath(*names).read_text())


@pytest.mark.parametrize("chip", ["gpu", "tpu"])
def test_a_scan_of_checkpointed_layers_runs_each_forward_product_again(recorded, chip):
    session = recorded("compiled", "today", f"{chip}_scan_remat.hlo")
    (region,) = session.get(Remat).regions
    forward = LAYERS * SCAN
    assert region.flops == forward
    assert session.get(RematVerdict).share == pytest.approx(1 / 4)  # of four equal parts
    assert region.rebuilt_bytes > 0


def test_layers_that_are_unrolled_are_one_region_where_no_scope_tells_them_apart(recorded):
    (region,) = recorded("compiled", "today", "cpu_remat_unroll.hlo").get(Remat).regions
    assert region.scope == ""
    assert region.flops == 2 * 2_097_152


def test_a_policy_that_keeps_all_products_recomputes_none(recorded):
    session = recorded("compiled", "today", "cpu_scan_remat_dots.hlo")
    assert session.get(Remat).flops == 0
    assert session.get(Remat).asked
    assert session.get(RematVerdict).outcome is RematOutcome.KEPT_ALL


def test_a_step_without_checkpoints_recomputes_nothing(recorded):
    session = recorded("compiled", "today", "gpu_scan_train.hlo")
    assert not session.get(Remat).asked
    assert session.get(RematVerdict).outcome is RematOutcome.NONE


def test_exchanges_and_kernels_that_run_again_are_counted(recorded):
    session = recorded("hlo", "tpu_v6e8_llama3_8b_train_step.hlo")
    (region,) = session.get(Remat).regions
    assert len(region.exchanges) == 7
    assert {call.custom_call_target for call in region.custom_calls} == {"tpu_custom_call"}
    verdict = session.get(RematVerdict)
    assert verdict.costly
    assert verdict.outcome is RematOutcome.UNKNOWN  # a bare module has no jaxpr


TWO_PRODUCTS = """HloModule m, is_scheduled=true
ENTRY e {{
 x = f32[64,64] parameter(0)
 w = f32[64,64] parameter(1)
 {first}
 t = f32[64,64] tanh(f), metadata={{op_name="jit(f)/jvp()/tanh"}}
 {again}
 ROOT b = f32[64,64] dot({read}, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
   metadata={{op_name="jit(f)/transpose(jvp())/checkpoint/dot" source_file="a.py" source_line=3}}
}}"""
DOT = "f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata="
FIRST = f'f = {DOT}{{op_name="jit(f)/jvp()/dot_general" source_file="a.py" source_line=3}}'
AGAIN = (
    f"g = {DOT}"
    '{op_name="jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general" '
    'source_file="a.py" source_line=3}'
)
EACH = 2 * 64**3
ASKED = JaxprCount(
    total=JaxprFlops(3 * EACH, 3 * EACH, 3 * EACH),
    by_kind={},
    recomputed=JaxprFlops(EACH, EACH, EACH),
    sites=(
        JaxprSite("matmul", "a.py", 3, False, False, EACH, 1),
        JaxprSite("matmul", "a.py", 3, True, True, EACH, 1),
        JaxprSite("matmul", "a.py", 3, True, False, EACH, 1),
    ),
)


def test_a_second_run_that_is_there_survived(session_of):
    text = TWO_PRODUCTS.format(first=FIRST, again=AGAIN, read="g")
    verdict = session_of(text, ASKED).get(RematVerdict)
    assert verdict.outcome is RematOutcome.SURVIVED
    assert verdict.asked_flops == EACH
    assert verdict.share == pytest.approx(1 / 3)


@pytest.mark.parametrize("left", [FIRST, AGAIN.replace("g = ", "f = ")])
def test_a_second_run_that_was_merged_is_undone_whichever_name_is_left(session_of, left):
    text = TWO_PRODUCTS.format(first=left, again="", read="f")
    verdict = session_of(text, ASKED).get(RematVerdict)
    assert verdict.outcome is RematOutcome.UNDONE
    assert verdict.undone_flops == EACH
    assert [str(place) for place in verdict.undone_at] == ["a.py:3"]


def test_values_that_are_rebuilt_for_the_backward_pass_have_their_bytes(session_of):
    text = TWO_PRODUCTS.format(first=FIRST, again=AGAIN, read="g")
    assert session_of(text).get(Remat).rebuilt_bytes == 64 * 64 * 4
    unscheduled = text.replace(", is_scheduled=true", "")
    assert session_of(unscheduled).get(Remat).rebuilt_bytes is None


def test_clones_of_xla_are_told_apart_from_checkpoints(session_of):
    clone = AGAIN.replace("g = ", "f.remat.1 = ").replace("/checkpoint/rematted_computation", "")
    text = TWO_PRODUCTS.format(first=FIRST, again=clone, read="f.remat.1")
    remat = session_of(text).get(Remat)
    assert [clone.name for clone in remat.clones] == ["f.remat.1"]
    assert remat.clone_flops == EACH
    assert remat.regions == []


LIMITED = """
import jax, jax.numpy as jnp
from hloscope import Step

def loss(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w)
    return (x ** 2).sum()

array = jax.ShapeDtypeStruct((8192, 8192), jnp.float32)
step = Step(jax.grad(loss), ([array] * 4, array))
"""


def test_products_in_fusions_that_xla_clones_for_want_of_memory_are_its_own(tmp_path, need_target):
    import hloscope

    need_target("h100")
    file = tmp_path / "train.py"
    file.write_text(LIMITED)
    # One percent of the card's memory: some 800 MB for arrays of 256 MB.
    limit = {"xla_gpu_memory_limit_slop_factor": "1"}
    session = Session(hloscope.load(f"{file}:step", target="h100", xla=limit))
    remat, ledger = session.get(Remat), session.get(FlopLedger)
    assert remat.clones
    assert all(clone.opcode == "fusion" for clone in remat.clones)
    # Forward and, but for the argument's gradient, twice as much backward; the rest is repeated.
    product = 2 * 8192**3
    assert remat.clone_flops == ledger.total.nominal - (4 + 7) * product > 0
    assert ledger.recomputed.nominal == remat.clone_flops
    assert session.get(RematVerdict).again_flops == remat.clone_flops
    assert session.get(RematVerdict).outcome is RematOutcome.NONE
    report = hloscope.remat(f"{file}:step", target="h100", xla=limit)
    assert report.summary.startswith("No checkpoint in the step, but XLA repeats")


FUSED = """HloModule m, is_scheduled=true
c {{
 a = f32[64,64] parameter(0)
 ROOT d = f32[64,64] dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
c.clone {{
 b = f32[64,64] parameter(0)
 ROOT d.1 = f32[64,64] dot(b, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
ENTRY e {{
 x = f32[64,64] parameter(0)
 {first} = f32[64,64] fusion(x), kind=kOutput, calls=c
 y = f32[64,64] tanh({first})
 {second} = f32[64,64] fusion(x), kind=kOutput, calls=c.clone
 ROOT z = f32[64,64] add(y, {second})
}}"""


@pytest.mark.parametrize(
    ("first", "second", "repeated"),
    [
        ("f.1", "f.1.remat", 1),
        ("f.1.remat", "f.1.remat2", 1),  # the original went, one of the two is a repetition
        ("f.1.remat", "f.1.remat.3", 1),
        ("f.1.remat", "f.2.remat3", 0),  # both were moved
        ("f.1", "f.2", 0),
    ],
)
def test_a_clone_repeats_something_only_if_something_of_its_name_is_left(
    session_of, first, second, repeated
):
    session = session_of(FUSED.format(first=first, second=second))
    assert session.get(Remat).clone_flops == repeated * EACH
    assert len(session.get(Remat).clones) == repeated


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        ("jit(f)/transpose(jvp(a))/checkpoint/rematted_computation/b/dot", "a"),
        ("jit(f)/transpose(jvp(l_0))/l_0/checkpoint/rematted_computation/dot", "l_0"),
        ("jit(f)/transpose(jvp())/while/body/closed_call/checkpoint/rematted_computation/d", ""),
        ("", ""),
    ],
)
def test_a_region_is_named_by_the_users_scopes_around_it(op_name, scope):
    assert region_scope(op_name) == scope


def test_a_module_with_an_empty_entry_has_nothing(session_of):
    text = "HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }"
    assert session_of(parse_text(text)).get(Remat).regions == []
